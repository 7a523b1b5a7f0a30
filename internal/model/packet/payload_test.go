// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestDecodePayload checks for each shape of packet the length of L4, and the payload.
func TestDecodePayload(t *testing.T) {
	const data = ` payload="data"`
	for _, test := range []struct {
		line, want string // the length of L4, and the payload; "none" if it is nil
	}{
		{u4 + data, "12 data"},
		{u6 + data + " ext=hbh,dst vlan=1,2", "12 data"},
		{u4, "8 "},
		{u4 + data + " frag=first", "12 data"},
		{u4 + data + " udplen=8", "12 data"},
		{u4 + data + " cut=45", "11 dat"},
		{u4 + data + " totlen=31", "11 dat"},
		{u4 + data + " totlen=28", "8 "},
		{u4 + data + " totlen=27", "7 none"},
		{u4 + data + " totlen=20", "0 none"},
		{u4 + data + " frag=later", "none none"},
		{u6 + data + " frag=8 mf", "none none"},
		{u6 + data + " ext=dst,dst,dst,dst,dst,dst,dst", "none none"},
		{u6 + data + " ext=dst cut=60", "none none"},

		{t4 + " ." + data, "24 data"},
		{t6 + " . tcpopts=ts,nop,nop" + data, "36 data"},
		{t4 + " ." + data + " ipopts=94040000 frag=first", "24 data"},
		{t4 + " ." + data + " doff=4", "24 none"},
		{t4 + " ." + data + " doff=0", "24 none"},
		{t4 + " ." + data + " doff=6", "24 "},
		{t4 + " ." + data + " doff=7", "24 none"},
		{t4 + " . cut=53", "19 none"},
		{t4 + " ." + data + " frag=8", "none none"},

		{"icmp " + v4 + data, "12 data"},
		{"icmpv6 " + v6 + data, "12 data"},
		{"icmp " + v4 + data + " totlen=27", "7 none"},
		{"proto=58 " + v4 + data, "4 data"},
		{"proto=1 " + v6 + data, "4 data"},
		{"gre " + v4 + data, "4 data"},
		{"gre " + v6 + data + " frag=first", "4 data"},
		{"gre " + v6 + data + " frag=later", "none none"},
		{"esp " + v4, "0 "},
		{"esp " + v6 + data + " ext=ah", "28 2|04" + strings.Repeat(" 00", 22) + "|data"}, // Decode reads no header after AH
		{"arp", "none none"},
		{u4 + data + " cut=33", "none none"},
	} {
		frame := mustParse(t, test.line).Frame()
		if got := payloadWords(Decode(frame)); got != test.want {
			t.Errorf("%s\n is %q, want %q", test.line, got, test.want)
		}
	}
}

func payloadWords(p Packet) string {
	l4, payload := "none", "none"
	if p.L4 != nil {
		l4 = fmt.Sprint(len(p.L4))
	}
	if p.Payload != nil {
		payload = ContentText(p.Payload)
	}
	return l4 + " " + payload
}

// TestPayloadEndsWithPacket checks that bytes after the packet in its frame do not belong to the payload.
func TestPayloadEndsWithPacket(t *testing.T) {
	for _, line := range []string{u4, u6, t4 + " S", t6 + " .", "icmp " + v4, "gre " + v6} {
		frame := mustParse(t, line+` payload="data"`).Frame()
		want := Decode(frame)
		got := Decode(append(frame, "padding"...))
		if !bytes.Equal(got.L4, want.L4) || string(got.Payload) != "data" {
			t.Errorf("%s: L4 %q, payload %q", line, got.L4, got.Payload)
		}
	}
}

func TestContent(t *testing.T) {
	for _, test := range []struct{ text, want, again string }{
		{"", "", ""},
		{"GET /", "GET /", "GET /"},
		{"a|00 01 ff|b", "a\x00\x01\xffb", "a|00 01 ff|b"},
		{"|0D0a|", "\r\n", "|0d 0a|"},
		{"|41 |b| 7c|", "Ab|", "Ab|7c|"},
		{"|4 1| |4  2|", "A B", "A B"},
		{"|41||42|", "AB", "AB"},
		{"ö", "\xc3\xb6", "|c3 b6|"},
		{"~ |7f|", "~ \x7f", "~ |7f|"},
	} {
		got, err := ParseContent(test.text)
		if err != nil || string(got) != test.want {
			t.Errorf("%q is %q, %v, want %q", test.text, got, err, test.want)
		}
		if again := ContentText(got); again != test.again {
			t.Errorf("%q is written %q, want %q", got, again, test.again)
		}
	}
	for _, text := range []string{"|", "||", "| |", "a|0", "|0|", "|00 0|", "|0x00|", "a|00|b|"} {
		if got, err := ParseContent(text); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}
