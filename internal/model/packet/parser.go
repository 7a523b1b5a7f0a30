// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// parser parses the words of one packet from left to right.
type parser struct {
	tokens []token
	end    token
	spec   Spec
	given  map[string]token // the options that have been parsed
}

// next removes the next word from the line and returns it. At the end of the line it returns an empty word.
func (p *parser) next() token {
	if len(p.tokens) == 0 {
		return p.end
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

func (p *parser) protocol() error {
	t := p.next()
	for _, known := range protocols {
		if t.text == known.name {
			p.spec.proto, p.spec.layer = known.proto, known.layer
			return nil
		}
	}
	number, isNumber := strings.CutPrefix(t.text, "proto=")
	if !isNumber {
		return t.errorf("protocol %q: want %s or proto=NUMBER", t.text, protocolNames())
	}
	n, err := parseNumber(number, 255)
	if err != nil {
		return t.errorf("proto: %w", err)
	}
	p.spec.proto = uint8(n)
	return nil
}

func protocolNames() string {
	var names []string
	for _, p := range protocols {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// addresses parses SRC > DST. Only an ARP packet may have no addresses.
func (p *parser) addresses() error {
	s := &p.spec
	if s.layer == layerARP && (len(p.tokens) == 0 || strings.Contains(p.tokens[0].text, "=")) {
		return nil
	}
	src := p.next()
	if err := p.endpoint(src, "source", &s.src, &s.sport); err != nil {
		return err
	}
	if arrow := p.next(); arrow.text != ">" {
		return arrow.errorf("%q: want > between source and destination", arrow.text)
	}
	srcHasPort := s.ports
	dst := p.next()
	if err := p.endpoint(dst, "destination", &s.dst, &s.dport); err != nil {
		return err
	}
	if s.src.Is4() != s.dst.Is4() {
		return dst.errorf("destination %s: want an address of the same family as the source %s", s.dst, s.src)
	}
	if s.ports != srcHasPort {
		return dst.errorf("destination %q: want a port on both addresses or on none", dst.text)
	}
	if want := p.family(); want != "" && s.src.Is4() != (want == "IPv4") {
		return src.errorf("source %s: %s needs %s addresses", s.src, s.protocolName(), want)
	}
	if s.layer == layerTCP && s.ports {
		s.flags = tcpSYN
	}
	return nil
}

// family returns the only address family that the protocol allows, or "" if it allows both.
func (p *parser) family() string {
	switch {
	case p.spec.layer == layerARP, p.spec.layer == layerICMP && p.spec.proto == ProtoICMP:
		return "IPv4"
	case p.spec.layer == layerICMP:
		return "IPv6"
	}
	return ""
}

// endpoint parses an address. For TCP and UDP, the address may have a port.
func (p *parser) endpoint(t token, what string, a *netip.Addr, port *uint16) error {
	text := t.text
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		text = text[1 : len(text)-1]
	}
	addr, err := netip.ParseAddr(text)
	p.spec.ports = err != nil
	if err != nil {
		var both netip.AddrPort
		both, err = netip.ParseAddrPort(text)
		addr, *port = both.Addr(), both.Port()
	}
	hasPorts := p.spec.layer == layerTCP || p.spec.layer == layerUDP
	switch {
	case err != nil && hasPorts:
		return t.errorf("%s %q: want ADDRESS:PORT, as 192.0.2.1:80 or [2001:db8::1]:80", what, t.text)
	case err != nil:
		return t.errorf("%s %q: want an address, as 192.0.2.1 or 2001:db8::1", what, t.text)
	case addr.Zone() != "":
		return t.errorf("%s %q: want an address without zone, packets carry none", what, t.text)
	case p.spec.ports && !hasPorts:
		return t.errorf("%s %q: want no port, %s has none", what, t.text, p.spec.protocolName())
	}
	*a = addr
	return nil
}

// options parses the flags and the key=value words.
func (p *parser) options() error {
	p.given = map[string]token{}
	for len(p.tokens) > 0 {
		t := p.next()
		key, value, _ := strings.Cut(t.text, "=")
		if err := p.option(t, key, value); err != nil {
			return err
		}
	}
	return p.portsGiven()
}

// portsGiven returns an error for a TCP or UDP packet without ports, unless it is a later fragment.
func (p *parser) portsGiven() error {
	s := &p.spec
	if s.ports || s.layer != layerTCP && s.layer != layerUDP {
		return nil
	}
	if s.get(numFrag, 0) == 0 {
		example := netip.AddrPortFrom(s.src, 1234)
		return p.end.errorf("%s needs ports, as in %s; only a later fragment (frag=later) has none", s.protocolName(), example)
	}
	if t, given := p.given[wordFlags]; given {
		return t.errorf("flags %s: want ports on the addresses as well", t.text)
	}
	return nil
}

func (p *parser) option(t token, key, value string) error {
	word, isWord := p.word(t.text)
	if isWord {
		key = word
	}
	if _, twice := p.given[key]; twice {
		return t.errorf("%s: given twice", key)
	}
	p.given[key] = t
	if isWord {
		return nil
	}
	for _, o := range options {
		if strings.TrimSuffix(o.name, "=") != key {
			continue
		}
		if !o.scope.has(&p.spec) {
			return t.errorf("%s: only %s has it", key, o.scope.name)
		}
		if err := o.parse(&p.spec, value); err != nil {
			return t.errorf("%s: %w", key, err)
		}
		return nil
	}
	return t.errorf("%q: want %s", t.text, p.wanted())
}

// The keys in given for words that have no key of their own.
const (
	wordFlags = "flags"
	wordType  = "type"
)

// word parses a word that is not key=value: TCP flags, or the name of an ICMP type.
func (p *parser) word(text string) (name string, known bool) {
	switch p.spec.layer {
	case layerTCP:
		flags, ok := parseFlags(text)
		if ok {
			p.spec.flags = flags
		}
		return wordFlags, ok
	case layerICMP:
		kind, ok := echoTypes[p.spec.proto][text]
		if ok {
			p.spec.put(numType, kind)
		}
		return wordType, ok
	}
	return "", false
}

var echoTypes = map[uint8]map[string]uint32{
	ProtoICMP:   {"echo-request": EchoRequest, "echo-reply": EchoReply},
	ProtoICMPv6: {"echo-request": EchoRequestV6, "echo-reply": EchoReplyV6},
}

// wanted returns a list of the options that this packet can have, for error messages.
func (p *parser) wanted() string {
	var names []string
	if p.spec.layer == layerTCP {
		names = append(names, "flags of "+flagLetters+". or none")
	}
	if p.spec.layer == layerICMP {
		names = append(names, "echo-request", "echo-reply")
	}
	for _, o := range options {
		if o.scope.has(&p.spec) {
			names = append(names, o.name)
		}
	}
	return strings.Join(names, ", ")
}

// lengths checks the given lengths against the size of the packet's headers and payload.
func (p *parser) lengths() error {
	s := p.spec
	if s.moreFrags && !s.has(numFrag) {
		p.spec.put(numFrag, 0)
	}
	s = p.spec
	s.set &^= 1<<numLen | 1<<numCut
	least := len(s.Frame()) - s.linkHeader()
	if least > maxLength {
		return p.end.errorf("payload: the packet has %d bytes, an IP packet at most %d", least, maxLength)
	}
	if n := p.spec.get(numLen, maxLength); int(n) < least {
		return p.given["len"].errorf("len=%d: the headers and the payload already take %d bytes", n, least)
	}
	if n := s.get(numTotLen, ipv6Header); n < ipv6Header && s.src.Is6() {
		return p.given["totlen"].errorf("totlen=%d: an IPv6 header cannot say less than %d bytes", n, ipv6Header)
	}
	return nil
}

// parseNumber parses a decimal number of at most most.
func parseNumber(text string, most uint32) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || uint32(n) > most {
		return 0, fmt.Errorf("%q: want a number from 0 to %d", text, most)
	}
	return uint32(n), nil
}
