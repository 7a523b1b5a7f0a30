// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"strings"
	"testing"
)

func TestParseCase(t *testing.T) {
	for _, test := range []struct {
		line, packet, verdict, reason string
	}{
		{"tcp 10.0.0.1:999 > 192.0.2.1:80 S  drop listed", "tcp 10.0.0.1:999 > 192.0.2.1:80 S", "drop", "listed"},
		{"tcp 10.0.0.1:999 > 192.0.2.1:80  pass # whatever", "tcp 10.0.0.1:999 > 192.0.2.1:80 S", "pass", ""},
		{"arp pass not-ip", "arp", "pass", "not-ip"},
		{"gre 10.0.0.1 > 10.0.0.2\tdrop\tdefault\r\n", "gre 10.0.0.1 > 10.0.0.2", "drop", "default"},
		{`icmp 10.0.0.1 > 10.0.0.2 drop "a name" # why`, "icmp 10.0.0.1 > 10.0.0.2", "drop", "a name"},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="x drop y" pass drop`, `udp 10.0.0.1:1 > 10.0.0.2:2 payload="x drop y"`, "pass", "drop"},
		{"udp [2001:db8::1]:1 > [2001:db8::2]:2  reject closed # and why", "udp [2001:db8::1]:1 > [2001:db8::2]:2", "reject", "closed"},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 . state=new reject", "tcp 10.0.0.1:1 > 10.0.0.2:2 A", "reject", ""},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 . state=invalid drop reject", "tcp 10.0.0.1:1 > 10.0.0.2:2 A state=invalid", "drop", "reject"},
		{"arp pass drop", "arp", "pass", "drop"},
		{"udp 10.0.0.1:1 > 10.0.0.2:53 dns=ANY,x truncate any", "udp 10.0.0.1:1 > 10.0.0.2:53 dns=ANY,x", "truncate", "any"},
	} {
		c, err := ParseCase(test.line)
		if err != nil {
			t.Errorf("%s: %v", test.line, err)
			continue
		}
		if c.Blank || c.Packet.String() != test.packet || c.Verdict != test.verdict || c.Reason != test.reason {
			t.Errorf("%s\nreads as %s, blank %t, verdict %q, reason %q", test.line, c.Packet, c.Blank, c.Verdict, c.Reason)
		}
	}
}

func TestParseCaseBlank(t *testing.T) {
	for _, line := range []string{"", "  \t", "# tcp 10.0.0.1:999 > 192.0.2.1:80 S drop"} {
		if c, err := ParseCase(line); err != nil || !c.Blank {
			t.Errorf("%q: blank %t, %v", line, c.Blank, err)
		}
	}
}

func TestParseCaseErrors(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"arp", "column 5: want the verdict, pass, drop, reject or truncate, after the packet"},
		{"arp accept", "column 12: want the verdict, pass, drop, reject or truncate, after the packet"},
		{"tcp 10.0.0.1 drop", `column 14: "": want > between source and destination`},
		{"arp drop a b", `column 12: "b": want one reason only`},
		{"arp rejected", "column 14: want the verdict, pass, drop, reject or truncate, after the packet"},
		{"arp reject pass drop", `column 17: "drop": want one reason only`},
		{`arp drop ""`, `column 10: reason "": want the name of a rule`},
		{`arp drop "a\q"`, `column 10: reason "a\q": want the name of a rule`},
		{`arp drop "a`, `column 10: "a: the closing " is missing`},
	} {
		c, err := ParseCase(test.line)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\n got %v (%v)\nwant %s", test.line, err, c, test.want)
		}
	}
}
