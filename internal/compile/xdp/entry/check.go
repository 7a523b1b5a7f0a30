// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"net/netip"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// The range of checks that are tested together. The check ReflectorSource must follow them directly, because suspectUDPSource relies on that. If
// there were a check between them, the index below would be out of range, and the package would not compile.
const firstTogether, lastTogether = packet.TCPHeader, packet.UDP6Checksum

var _ = [1]struct{}{}[packet.ReflectorSource-lastTogether-1]

// checks adds the tests of the checks that a packet of this section can fail. The order is that of the reasons: the first check that fails is the
// reason, and the remaining ones are skipped. The checks of TCP and UDP are adjacent in that order. One short test finds packets that may fail any of
// these. Separate code then decides which check fails. The code changes r0 to r4, and keeps the length in r5.
func (s *section) checks() {
	s.ask(0, firstTogether-1)
	careful, checked := s.label("careful"), s.label("checked")
	together := false
	for check := firstTogether; check <= lastTogether; check++ {
		if s.asked(check) {
			suspect[check](s, careful)
			together = true
		}
	}
	s.Mark(checked)
	s.ask(lastTogether+1, packet.NumChecks-1)
	if together {
		s.apart = append(s.apart, func() {
			s.Mark(careful)
			s.ask(firstTogether, lastTogether)
			s.Add(asm.Ja.Label(checked))
		})
	}
}

// ask adds the tests of a range of checks, in order. Both ends are included.
func (s *section) ask(from, to packet.Check) {
	for check := from; check <= to; check++ {
		if code := checkCode[check]; code != nil && s.asked(check) {
			code(s, s.exit(check))
		}
	}
}

// exit returns the label to which a packet that fails a check jumps. For checks that only count, this is the label of general().
func (s *section) exit(c packet.Check) string {
	switch {
	case !s.Program.Checks.Has(c):
		return toGeneral
	case s.Program.RepliesFirst && packet.SenderChecks.Has(c):
		return s.unlessReply(c)
	}
	return failed(c)
}

// unlessReply returns the label to which a packet jumps that fails one of packet.SenderChecks. If replies pass before these checks, the code at the
// label tests whether the packet is a reply. So other packets do not need that test. general() decides replies.
func (s *section) unlessReply(c packet.Check) string {
	label := s.label("unless_reply_" + c.String())
	s.apart = append(s.apart, func() {
		s.Mark(label)
		if s.proto.ports != nil {
			s.replied(failed(c), false, func(string) { s.Add(asm.Ja.Label(toGeneral)) })
			s.Add(asm.Ja.Label(failed(c)))
			return
		}
		s.Add(asm.LoadMem(asm.R1, base, s.family.l4, asm.Byte), asm.JEq.Imm(asm.R1, s.echoRequest(), failed(c)), asm.Ja.Label(toGeneral))
	})
	return label
}

// checkCode maps each check that a packet of a section can fail to a function that adds its code. The code jumps to exit if the check fails. Checks
// that only fail for frames that the entry leaves to general() are absent.
var checkCode = map[packet.Check]func(s *section, exit string){
	packet.TTLZero:         (*section).ttlZero,
	packet.Land:            (*section).land,
	packet.SourceAddress:   (*section).sourceAddress,
	packet.BogonSource:     (*section).bogonSource,
	packet.OwnSource:       (*section).ownSource,
	packet.NDHopLimit:      (*section).ndHopLimit,
	packet.TCPHeader:       (*section).tcpHeader,
	packet.TCPFlags:        (*section).tcpFlags,
	packet.PortZero:        (*section).portZero,
	packet.UDPSourceZero:   (*section).udpSourceZero,
	packet.TCPOptions:      (*section).synOptions,
	packet.SYNData:         (*section).synForGeneral,
	packet.SYNLowPort:      (*section).synForGeneral,
	packet.SYNNoMSS:        (*section).synNoMSS,
	packet.SYNWindowZero:   (*section).synWindowZero,
	packet.ACKZero:         (*section).ackZero,
	packet.UDPLength:       (*section).udpLength,
	packet.UDP6Checksum:    (*section).udp6Checksum,
	packet.ReflectorSource: (*section).reflectorSource,
	packet.ICMPType:        (*section).icmpType,
	packet.ICMPLarge:       (*section).icmpLarge,
	packet.IPChecksum:      (*section).ipChecksum,
}

// suspect maps each check that is tested together with others to a function that adds code. The code jumps to exit if the packet may fail the check.
// It may also jump for other packets. Two tests are part of the test of another check if that check is enabled: suspectSYN of suspectTCPFlags, and
// suspectUDPSource of reflectorSource.
var suspect = map[packet.Check]func(s *section, exit string){
	packet.TCPHeader:     (*section).suspectTCPHeader,
	packet.TCPFlags:      (*section).suspectTCPFlags,
	packet.PortZero:      (*section).portZero,
	packet.UDPSourceZero: (*section).suspectUDPSource,
	packet.TCPOptions:    (*section).suspectSYN,
	packet.SYNData:       (*section).suspectSYN,
	packet.SYNLowPort:    (*section).suspectSYN,
	packet.SYNNoMSS:      (*section).suspectSYN,
	packet.SYNWindowZero: (*section).suspectSYN,
	packet.ACKZero:       (*section).ackZero,
	packet.UDPLength:     (*section).suspectUDPLength,
	packet.UDP6Checksum:  (*section).udp6Checksum,
}

func (s *section) is(proto uint32) bool { return s.proto.number == proto }

func (s *section) v4() bool { return s.family.value == packet.FamilyIPv4 }

// ttlZero adds the code of the check for IPv6. For IPv4, the function ipv4() tests the TTL.
func (s *section) ttlZero(exit string) {
	if s.v4() {
		return
	}
	s.Add(asm.LoadMem(asm.R1, base, s.family.ttl, asm.Byte), asm.JEq.Imm(asm.R1, 0, exit))
}

func (s *section) land(exit string) {
	if s.v4() {
		s.Add(
			asm.LoadMem(asm.R1, base, s.family.source, asm.Word), asm.LoadMem(asm.R2, base, s.family.dest, asm.Word),
			asm.JEq.Reg(asm.R1, asm.R2, exit),
		)
		return
	}
	differ := s.newLabel()
	s.Add(
		asm.LoadMem(asm.R1, base, s.family.source+8, asm.DWord), asm.LoadMem(asm.R2, base, s.family.dest+8, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, differ),
		asm.LoadMem(asm.R1, base, s.family.source, asm.DWord), asm.LoadMem(asm.R2, base, s.family.dest, asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R2, exit),
	)
	s.Mark(differ)
}

func (s *section) sourceAddress(exit string) {
	if s.v4() {
		if !s.asked(packet.BogonSource) { // bogonSource makes both checks at once
			s.nearPrefixes(packet.InvalidSources, func() { s.inEach(packet.InvalidSources, exit) })
		}
		return
	}
	other := s.newLabel()
	s.Add(
		asm.LoadMem(asm.R1, base, s.family.source, asm.Byte),
		asm.JEq.Imm(asm.R1, 0xff, exit),
		asm.LoadMem(asm.R1, base, s.family.source, asm.DWord),
		asm.JNE.Imm(asm.R1, 0, other),
		asm.LoadMem(asm.R1, base, s.family.source+8, asm.DWord), asm.HostTo(asm.BE, asm.R1, asm.DWord),
		asm.JEq.Imm(asm.R1, 1, exit),
	)
	s.Mark(other)
}

// nearPrefixes tests whether the IPv4 source may be in one of the prefixes. Most sources have a first byte that no prefix has. Only for the others it
// runs code, which is outside of the main path.
func (s *section) nearPrefixes(list []netip.Prefix, code func()) {
	near, back := s.newLabel(), s.newLabel()
	s.Add(asm.LoadMem(asm.R1, base, s.family.source, asm.Byte))
	for _, r := range firstBytes(list) {
		if r.Last == 0xff {
			s.Add(asm.JGE.Imm(asm.R1, int32(r.First), near))
			continue
		}
		s.within(asm.R1, r, near)
	}
	s.Mark(back)
	s.apart = append(s.apart, func() {
		s.Mark(near)
		code()
		s.Add(asm.Ja.Label(back))
	})
}

// firstBytes returns the first bytes of IPv4 prefixes as ascending ranges. There are no hosts from 224.0.0.0 on (RFC 1112, 4, and RFC 6890). So two
// ranges there can become one without an effect on legitimate packets.
func firstBytes(list []netip.Prefix) (out []ir.Range) {
	const afterHosts = 224
	for _, p := range list {
		if p.Addr().Is4() {
			first, bytes := uint32(p.Addr().As4()[0]), uint32(1)<<(8-min(p.Bits(), 8))
			out = append(out, ranges.Span(first, first+bytes-1))
		}
	}
	out = ranges.Normalize(out)
	for n := len(out) - 1; n > 0 && out[n-1].Last >= afterHosts; n-- {
		out[n-1].Last = out[n].Last
		out = out[:n]
	}
	return out
}

// inEach adds code that jumps to exit if the IPv4 source is in one of the prefixes. Prefixes of the same length share a shift instruction.
func (s *section) inEach(list []netip.Prefix, exit string) {
	byLength := map[int][]uint32{}
	var lengths []int
	for _, p := range list {
		if !p.Addr().Is4() {
			continue
		}
		a := p.Addr().As4()
		value := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
		if byLength[p.Bits()] == nil {
			lengths = append(lengths, p.Bits())
		}
		byLength[p.Bits()] = append(byLength[p.Bits()], value>>(32-p.Bits()))
	}
	slices.Sort(lengths)
	s.Add(asm.LoadMem(asm.R1, base, s.family.source, asm.Word), asm.HostTo(asm.BE, asm.R1, asm.Word))
	for _, n := range lengths {
		s.Add(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, int32(32-n)))
		for _, value := range byLength[n] {
			if int64(value) > 1<<31-1 {
				s.Add(asm.LoadImm(asm.R4, int64(value), asm.DWord), asm.JEq.Reg(asm.R2, asm.R4, exit))
				continue
			}
			s.Add(asm.JEq.Imm(asm.R2, int32(value), exit))
		}
	}
}

// bogonSource adds the code of the check for IPv4, together with the check source-address. It leaves IPv6 packets that may be bogons to general(),
// and also packets of a host that asks for an address.
func (s *section) bogonSource(exit string) {
	if s.v4() {
		s.nearPrefixes(slices.Concat(packet.InvalidSources, packet.Bogons), func() {
			if s.asked(packet.SourceAddress) {
				s.inEach(packet.InvalidSources, s.exit(packet.SourceAddress))
			}
			if s.is(packet.ProtoUDP) {
				s.Add(asm.LoadMem(asm.R1, base, s.family.source, asm.Word), asm.JEq.Imm(asm.R1, 0, toGeneral))
			}
			s.inEach(packet.Bogons, exit)
		})
		return
	}
	other := s.newLabel()
	s.Add(
		asm.LoadMem(asm.R1, base, s.family.source, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JLT.Imm(asm.R1, 0x0200, toGeneral), // ::/8, and 64:ff9b:1::/48 and 100::/64
		asm.JGE.Imm(asm.R1, 0xfc00, toGeneral),
		asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 4),
		asm.JEq.Imm(asm.R2, 0x3fff>>4, toGeneral),
		asm.JNE.Imm(asm.R1, 0x2001, other),
		asm.LoadMem(asm.R1, base, s.family.source+2, asm.Half),
		asm.JEq.Imm(asm.R1, networkOrder(0x0db8), toGeneral),
	)
	s.Mark(other)
}

// ownSource adds the code that looks up the source in the set of the host's own addresses.
func (s *section) ownSource(exit string) {
	for number := range int32(image.MaxDynamicSets) {
		if s.isOwn(number) {
			s.has(number, false, exit, func() { s.loadLength(length, s.family) })
		}
	}
}

func (s *section) ndHopLimit(exit string) {
	if !s.is(packet.ProtoICMPv6) {
		return
	}
	other := s.newLabel()
	s.Add(
		asm.LoadMem(asm.R1, base, s.family.l4, asm.Byte),
		asm.Sub.Imm(asm.R1, 133), asm.JGT.Imm(asm.R1, 137-133, other), // RFC 4861, 4
		asm.LoadMem(asm.R1, base, s.family.ttl, asm.Byte), asm.JNE.Imm(asm.R1, 255, exit),
	)
	s.Mark(other)
}

func (s *section) udpSourceZero(exit string) {
	if s.is(packet.ProtoUDP) {
		s.Add(asm.LoadMem(asm.R1, base, s.family.l4, asm.Half), asm.JEq.Imm(asm.R1, 0, exit))
	}
}

func (s *section) portZero(exit string) {
	if s.proto.ports == nil {
		return
	}
	const source = 0xffff // both ports are loaded at once; these bits are the source port
	s.Add(asm.LoadMem(asm.R1, base, s.family.l4, asm.Word), asm.JLE.Imm(asm.R1, source, exit))
	if s.is(packet.ProtoTCP) {
		some := s.newLabel()
		s.Add(asm.JSet.Imm(asm.R1, source, some), asm.Ja.Label(exit))
		s.Mark(some)
	}
}

// suspectUDPSource adds no code if the check of reflectorSource is enabled, because the table of that check contains port 0. The reason of a packet
// is still right, because reflectorSource follows directly after the checks that are tested together.
func (s *section) suspectUDPSource(exit string) {
	if !s.asked(packet.ReflectorSource) {
		s.udpSourceZero(exit)
	}
}

// suspectUDPLength adds code that jumps to exit if the UDP length differs from the rest of the IP packet. That rest has at least 8 bytes.
func (s *section) suspectUDPLength(exit string) {
	if s.is(packet.ProtoUDP) {
		s.Add(
			asm.LoadMem(asm.R1, base, s.family.l4+4, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
			asm.Add.Imm(asm.R1, s.family.header()), asm.JNE.Reg(asm.R1, length, exit),
		)
	}
}

// udpLength adds code that compares the UDP length with the rest of the IP packet.
func (s *section) udpLength(exit string) {
	if !s.is(packet.ProtoUDP) {
		return
	}
	s.Add(
		asm.LoadMem(asm.R1, base, s.family.l4+4, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JLT.Imm(asm.R1, 8, exit),
		asm.Add.Imm(asm.R1, s.family.header()),
		asm.JGT.Reg(asm.R1, length, exit),
	)
}

func (s *section) udp6Checksum(exit string) {
	if s.is(packet.ProtoUDP) && !s.v4() {
		s.Add(asm.LoadMem(asm.R1, base, s.family.l4+6, asm.Half), asm.JEq.Imm(asm.R1, 0, exit))
	}
}

// reflectorSource adds code that looks up the hash of the source port in a table of bytes. Only if the byte is set, the code compares the port with
// all reflector ports.
func (s *section) reflectorSource(exit string) {
	if !s.is(packet.ProtoUDP) {
		return
	}
	maybe, none := s.newLabel(), s.newLabel()
	s.Add(
		asm.LoadMem(asm.R1, base, s.family.l4, asm.Half), asm.Mul.Imm32(asm.R1, int32(fibonacci)), asm.RSh.Imm32(asm.R1, reflectorShift),
		asm.LoadMapValue(asm.R2, 0, 0).WithReference(image.Reflectors), asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadMem(asm.R2, asm.R2, 0, asm.Byte), asm.JNE.Imm(asm.R2, 0, maybe),
	)
	s.Mark(none)
	s.apart = append(s.apart, func() {
		s.Mark(maybe)
		s.Add(asm.LoadMem(asm.R1, base, s.family.l4, asm.Half))
		if s.asked(packet.UDPSourceZero) {
			s.Add(asm.JEq.Imm(asm.R1, 0, s.exit(packet.UDPSourceZero)))
		}
		s.Add(asm.HostTo(asm.BE, asm.R1, asm.Half))
		for _, port := range packet.ReflectorPorts {
			s.Add(asm.JEq.Imm(asm.R1, int32(port), exit))
		}
		s.Add(asm.Ja.Label(none))
	})
}

// ReflectorBytes is the size of the map image.Reflectors: one page. One port in 200 has the same byte as a reflector port. The ports of DNS, NTP and
// HTTP/3 do not (TestReflectors of cmd/floodwall-lab/guard).
const (
	ReflectorBytes = 1 << 12
	reflectorShift = 32 - 12 // the upper bits of a product depend on all bits of its factors
)

// FillReflectors writes the content of the map image.Reflectors. The bytes of port 0 and of each port of packet.ReflectorPorts are 1.
func FillReflectors(to []byte) {
	for _, port := range append([]uint16{0}, packet.ReflectorPorts...) {
		to[uint32(networkOrder(port))*fibonacci>>reflectorShift] = 1
	}
}

func (s *section) icmpType(exit string) {
	if !s.is(packet.ProtoICMP) {
		return
	}
	s.Add(asm.LoadMem(asm.R1, base, s.family.l4, asm.Byte))
	for _, t := range []int32{4, 5} {
		s.Add(asm.JEq.Imm(asm.R1, t, exit))
	}
	s.Add(asm.Sub.Imm(asm.R1, 13), asm.JLE.Imm(asm.R1, 18-13, exit)) // RFC 6918
}

// echoRequest returns the type of an echo request, for a section of ICMP or ICMPv6.
func (s *section) echoRequest() int32 {
	if s.v4() {
		return 8
	}
	return 128
}

func (s *section) icmpLarge(exit string) {
	if s.proto.types == nil {
		return
	}
	other := s.newLabel()
	s.Add(asm.LoadMem(asm.R1, base, s.family.l4, asm.Byte), asm.JNE.Imm(asm.R1, s.echoRequest(), other), asm.JGT.Imm(length, 1024, exit))
	s.Mark(other)
}

// Constants for an exact test of divisibility. A multiple of 2^16-1, multiplied by the inverse of 2^16-1 modulo 2^64, gives at most the quotient. No
// other number does (Granlund and Montgomery, Division by invariant integers using multiplication, PLDI 1994, 9).
const (
	checksumInverse  = 0xfffefffefffeffff
	checksumQuotient = 0x0001000100010001 // (2^64-1) / (2^16-1)
)

// ipChecksum adds code that sums the header (RFC 1071) in words of 32 bits, because 2^16 is 1 modulo 2^16-1. The checksum is right if the sum is a
// multiple of 2^16-1. The sum is never 0, because the version field is not 0.
func (s *section) ipChecksum(exit string) {
	if !s.v4() {
		return
	}
	s.Add(asm.LoadMem(asm.R1, base, 14, asm.Word))
	for at := int16(18); at < 34; at += 4 {
		s.Add(asm.LoadMem(asm.R2, base, at, asm.Word), asm.Add.Reg(asm.R1, asm.R2))
	}
	inverse := uint64(checksumInverse)
	s.Add(
		asm.LoadImm(asm.R2, int64(inverse), asm.DWord), asm.Mul.Reg(asm.R1, asm.R2),
		asm.LoadImm(asm.R2, checksumQuotient, asm.DWord), asm.JGT.Reg(asm.R1, asm.R2, exit),
	)
}
