// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

const (
	defaultTTL    = 64
	defaultWindow = 65535
)

// appendIPv4 appends an IPv4 header with its options. The length and the checksum are still 0.
func (s *Spec) appendIPv4(b []byte) []byte {
	start := len(b)
	b = append(b, 0, byte(s.get(numDSCP, 0)<<2), 0, 0, 0, 1)
	b = binary.BigEndian.AppendUint16(b, s.ipv4Fragment())
	b = append(b, s.ttl(), s.proto, 0, 0)
	src, dst := s.src.As4(), s.dst.As4()
	b = append(append(b, src[:]...), dst[:]...)
	b = pad(append(b, s.ipOptions...), start, 4)
	b[start] = 4<<4 | byte(s.get(numIHL, uint32(len(b)-start)/4))
	return b
}

func (s *Spec) ipv4Fragment() uint16 {
	field := uint16(s.get(numFrag, 0) / 8)
	if s.moreFrags {
		field |= ipv4MF
	}
	if field == 0 {
		return ipv4DF
	}
	return field
}

// ttl returns the TTL: the given one, 255 for neighbor discovery, because receivers require that, or else 64.
func (s *Spec) ttl() byte {
	if s.proto == ProtoICMPv6 && s.layer == layerICMP && isDiscovery(s.icmpType()) {
		return byte(s.get(numTTL, onLinkHops))
	}
	return byte(s.get(numTTL, defaultTTL))
}

// appendIPv6 appends an IPv6 header, with a length of 0 that is set later, and the extension headers.
func (s *Spec) appendIPv6(b []byte) []byte {
	class := byte(s.get(numDSCP, 0) << 2)
	next, chain := extensionChain(s.extensions(), s.proto)
	b = append(b, 6<<4|class>>4, class<<4, 0, 0, 0, 0, next, s.ttl())
	src, dst := s.src.As16(), s.dst.As16()
	b = append(append(b, src[:]...), dst[:]...)
	for i, kind := range chain {
		start := len(b)
		b = append(b, kind.body...)
		b[start] = nextHeader(chain, i+1, s.proto)
		if kind.proto == protoFragment {
			binary.BigEndian.PutUint16(b[start+2:], s.ipv6Fragment())
		}
	}
	return b
}

// extensionKind is a kind of extension header that a line can name. The first byte of body, the next header, is set later.
type extensionKind struct {
	name  string
	proto uint8
	body  []byte
}

// fragmentKind is the index of the fragment header in extensionKinds.
const fragmentKind = 0

var extensionKinds = []extensionKind{
	fragmentKind: {"frag", protoFragment, []byte{0, 0, 0, 0, 0, 0, 0, 1}},
	{"hbh", protoHopByHop, []byte{0, 0, 1, 4, 0, 0, 0, 0}}, // contains a PadN option
	{"dst", protoDstOpts, []byte{0, 0, 1, 4, 0, 0, 0, 0}},
	{"rh0", protoRouting, []byte{0, 0, routingType0, 0, 0, 0, 0, 0}},
	{"rh2", protoRouting, append([]byte{0, 2, 2, 1}, make([]byte, 20)...)}, // the header of Mobile IPv6 (RFC 6275)
	{"ah", protoAH, append([]byte{0, 4}, make([]byte, 22)...)},             // contains a 96-bit integrity check value
}

// extensions returns the extension headers of s. If s is a fragment and has no fragment header, a fragment header is added.
func (s *Spec) extensions() []int {
	for _, i := range s.ext {
		if i == fragmentKind {
			return s.ext
		}
	}
	if s.has(numFrag) || s.moreFrags {
		return append(s.ext[:len(s.ext):len(s.ext)], fragmentKind)
	}
	return s.ext
}

// extensionChain returns the kinds of the headers at the given indices, and the type of the first header. If there is none, the type is proto.
func extensionChain(indices []int, proto uint8) (next uint8, chain []extensionKind) {
	for _, i := range indices {
		chain = append(chain, extensionKinds[i])
	}
	return nextHeader(chain, 0, proto), chain
}

// nextHeader returns the type of header i of the chain. After the last one it returns proto, the type of the L4 header.
func nextHeader(chain []extensionKind, i int, proto uint8) uint8 {
	if i < len(chain) {
		return chain[i].proto
	}
	return proto
}

func (s *Spec) ipv6Fragment() uint16 {
	field := uint16(s.get(numFrag, 0)/8) << ipv6OffsetBits
	if s.moreFrags {
		field |= ipv6MF
	}
	return field
}
