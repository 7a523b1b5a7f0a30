// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// dnsSpec is a DNS message with one question, as described by the option dns=.
type dnsSpec struct {
	name                      []byte // in wire format
	kind, class, id           uint16
	opcode                    uint16
	response, edns, signature bool   // signature: the flag DO is set, so the sender wants DNSSEC records
	size                      uint16 // with edns, the largest response in bytes that the sender accepts
	cookie                    []byte
}

const (
	usualUDPSize = 1232 // bytes: a size that fits on every path without fragments (DNS flag day 2020)
	maxOpcode    = 15
)

// append appends the message to b.
func (d *dnsSpec) append(b []byte) []byte {
	flags := d.opcode<<dnsOpcodeShift | dnsRD
	if d.response {
		flags |= dnsQR
	}
	extras := uint16(0)
	if d.edns {
		extras = 1
	}
	for _, word := range [...]uint16{d.id, flags, 1, 0, 0, extras} {
		b = binary.BigEndian.AppendUint16(b, word)
	}
	b = append(b, d.name...)
	b = binary.BigEndian.AppendUint16(b, d.kind)
	b = binary.BigEndian.AppendUint16(b, d.class)
	if d.edns {
		b = d.appendOPT(b)
	}
	return b
}

// appendOPT appends the OPT record to b: the name of the root, the type, the size, the extended response code, version and flags, the length of the
// options, and the cookie if there is one.
func (d *dnsSpec) appendOPT(b []byte) []byte {
	var flags, data uint16
	if d.signature {
		flags = dnsDO
	}
	if d.cookie != nil {
		data = uint16(ednsOption + len(d.cookie))
	}
	b = append(b, 0)
	for _, word := range [...]uint16{dnsTypeOPT, d.size, 0, flags, data} {
		b = binary.BigEndian.AppendUint16(b, word)
	}
	if d.cookie == nil {
		return b
	}
	b = binary.BigEndian.AppendUint16(b, ednsCookie)
	b = binary.BigEndian.AppendUint16(b, uint16(len(d.cookie)))
	return append(b, d.cookie...)
}

func (s *Spec) parseDNS(value string) error {
	d := dnsSpec{class: dnsClassIN}
	kind, rest, _ := strings.Cut(value, ",")
	name, rest, more := strings.Cut(rest, ",")
	if err := d.parseQuestion(kind, name); err != nil {
		return err
	}
	if more {
		for item := range strings.SplitSeq(rest, ",") {
			if err := d.parseItem(item); err != nil {
				return err
			}
		}
	}
	if s.payload != nil {
		return errOnePayload
	}
	s.dns = &d
	return nil
}

func (d *dnsSpec) parseQuestion(kind, name string) (err error) {
	if name == "" {
		return fmt.Errorf("%q: want TYPE,NAME, as ANY,example.com; the root's name is a dot", kind)
	}
	if d.kind, err = ParseDNSType(kind); err != nil {
		return err
	}
	d.name, err = parseName(name)
	return err
}

var errOnePayload = errors.New("want payload or dns, not both")

// parseItem parses one of the words after the question.
func (d *dnsSpec) parseItem(item string) (err error) {
	name, value, _ := strings.Cut(item, ":")
	switch name {
	case "id":
		d.id, err = parseUint16(value)
		return err
	case "edns":
		d.withOPT()
		d.size, err = parseUint16(value)
		return err
	case "cookie":
		d.withOPT()
		d.cookie, err = parseHex(value)
		return err
	case "class":
		d.class, err = parseUint16(value)
		return err
	case "opcode":
		n, err := parseNumber(value, maxOpcode)
		d.opcode = uint16(n)
		return err
	}
	switch item {
	case "do":
		d.withOPT()
		d.signature = true
	case "response":
		d.response = true
	default:
		return fmt.Errorf("%q: want id:NUMBER, edns:SIZE, do, cookie:HEX, class:NUMBER, opcode:NUMBER, response", item)
	}
	return nil
}

// withOPT adds an OPT record to the message if it has none yet.
func (d *dnsSpec) withOPT() {
	if !d.edns {
		d.edns, d.size = true, usualUDPSize
	}
}

func parseUint16(text string) (uint16, error) {
	n, err := parseNumber(text, 1<<16-1)
	return uint16(n), err
}

func (s *Spec) formatDNS() (string, bool) {
	if s.dns == nil {
		return "", false
	}
	return s.dns.String(), true
}

// specName escapes characters of names that have another meaning in the notation. It uses the same escapes as nameText.
var specName = strings.NewReplacer(",", `\044`, `"`, `\034`)

// String returns the message in the notation that parseDNS parses.
func (d *dnsSpec) String() string {
	words := []string{DNSTypeText(d.kind), specName.Replace(nameText(d.name))}
	if words[1] == "" {
		words[1] = "."
	}
	add := func(name string, value any, given bool) {
		if given {
			words = append(words, fmt.Sprint(name, value))
		}
	}
	add("id:", d.id, d.id != 0)
	add("edns:", d.size, d.edns)
	add("do", "", d.signature)
	add("cookie:", hex.EncodeToString(d.cookie), d.cookie != nil)
	add("class:", d.class, d.class != dnsClassIN)
	add("opcode:", d.opcode, d.opcode != 0)
	add("response", "", d.response)
	return strings.Join(words, ",")
}
