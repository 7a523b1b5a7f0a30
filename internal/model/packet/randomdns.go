// SPDX-License-Identifier: Apache-2.0

package packet

import "bytes"

// maybePayload chooses a random payload. A UDP payload is often a DNS message. Otherwise the payload is random bytes, often with a text in it that
// the policy mentions.
func (g *generator) maybePayload() {
	s := &g.spec
	hints := len(g.hints.Values[DNS])+len(g.hints.Names) > 0
	switch {
	case s.layer == layerUDP && (hints && g.oneIn(2) || g.oneIn(6)):
		g.dns()
	case len(g.hints.Texts) > 0 && g.oneIn(2):
		s.payload = g.around(pick(g, g.hints.Texts))
	case g.oneIn(3):
		s.payload = g.bytes(1 + g.r.IntN(32))
	}
}

// around returns a text between random bytes. Sometimes the text has other upper and lower case, is truncated, or has one wrong bit.
func (g *generator) around(text []byte) []byte {
	b := append(g.bytes(g.r.IntN(1+g.r.IntN(40))), g.anyCase(text)...)
	switch g.r.IntN(6) {
	case 0:
		return b[:1+g.r.IntN(len(b))]
	case 1:
		b[len(b)-1-g.r.IntN(len(text))] ^= 1 << g.r.IntN(8)
	}
	return append(b, g.bytes(g.r.IntN(1+g.r.IntN(40)))...)
}

// anyCase returns a copy of text. In half of the copies, about half of the ASCII letters change between upper and lower case.
func (g *generator) anyCase(text []byte) []byte {
	b := bytes.Clone(text)
	if g.oneIn(2) {
		for i, c := range b {
			if isLetter := c|0x20 >= 'a' && c|0x20 <= 'z'; isLetter && g.oneIn(2) {
				b[i] ^= 0x20
			}
		}
	}
	return b
}

// dns chooses a random DNS message. In half of the cases it goes to port 53.
func (g *generator) dns() {
	s := &g.spec
	if g.oneIn(2) {
		s.dport = 53
	}
	s.dns = &dnsSpec{name: g.name(), class: dnsClassIN, id: uint16(g.r.Uint32())}
	switch v := g.value(DNS, 1, 28, 255, 16); {
	case v == DNSResponse, g.oneIn(20):
		s.dns.response = true
	case v == DNSOther:
		s.dns.opcode, s.dns.class = uint16(g.r.Uint32N(6)), 3
	case v < DNSResponse:
		s.dns.kind = uint16(v)
	}
	if g.oneIn(2) {
		s.dns.edns, s.dns.size = true, uint16(pick(g, []uint32{0, 512, usualUDPSize, 4096, g.r.Uint32N(1 << 16)}))
		s.dns.signature = g.oneIn(2)
		if g.oneIn(2) {
			s.dns.cookie = g.bytes(pick(g, []int{8, 8, 16, 24, 40, 1 + g.r.IntN(48)}))
		}
	}
	if g.wrong(3) {
		s.payload, s.dns = g.garble(s.dns.append(nil)), nil
	}
}

// name returns a random name: a name that the policy mentions, a subdomain of it, a name with only a similar end, its parent domain, or any name.
func (g *generator) name() []byte {
	if len(g.hints.Names) == 0 || g.oneIn(4) {
		return g.anyName()
	}
	listed, err := parseName(pick(g, g.hints.Names))
	if err != nil {
		return g.anyName()
	}
	name := listed
	switch {
	case g.oneIn(3):
		name = append([]byte{1, byte(g.r.Uint32())}, listed...)
	case g.oneIn(4) && listed[0] != 0:
		name = append([]byte{listed[0] + 1, 'x'}, listed[1:]...)
	case g.oneIn(6):
		name = listed[min(1+int(listed[0]), len(listed)-1):]
	}
	if _, _, ok := dnsName(name); !ok { // the name has become too long
		name = listed
	}
	return g.anyCase(name) // does not change the length bytes of labels, because they are not letters
}

// anyName returns up to three random labels of letters or of any bytes, or a name of the largest length.
func (g *generator) anyName() (name []byte) {
	labels := g.r.IntN(4)
	if g.oneIn(16) {
		labels = 4
	}
	for i := range labels {
		label := []byte("abcdefghij"[:1+g.r.IntN(10)])
		switch {
		case i == 3:
			label = g.bytes(maxName - 1 - len(name) - 1)
		case labels == 4 || g.oneIn(8):
			label = g.bytes(maxLabel)
		case g.oneIn(8):
			label = g.bytes(1 + g.r.IntN(4))
		}
		name = append(append(name, byte(len(label))), label...)
	}
	return append(name, 0)
}

// garble damages a message in one place, or leaves it unchanged.
func (g *generator) garble(b []byte) []byte {
	switch g.r.IntN(5) {
	case 0:
		return b[:g.r.IntN(len(b)+1)]
	case 1:
		return append(b, g.bytes(1+g.r.IntN(16))...)
	case 2: // flip a bit in the flags or the counts
		b[2+g.r.IntN(dnsHeader-2)] ^= 1 << g.r.IntN(8)
	case 3: // change a byte near the start of the name, which may be the length of a label
		b[dnsHeader+g.r.IntN(min(8, len(b)-dnsHeader))] = pick(g, []byte{0, 1, maxLabel, maxLabel + 1, 0x80, 0xc0, 0xff})
	case 4:
		b[g.r.IntN(len(b))] = byte(g.r.Uint32())
	}
	return b
}
