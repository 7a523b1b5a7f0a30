// SPDX-License-Identifier: Apache-2.0

package shorthand_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/shorthand"
)

const text = `devices: [eth0, eth1]
sets:
  office: [203.0.113.0/24]
rules:
  - {name: mail, port: tcp/25, then: drop}
  - {name: few, port: ssh, flags: "syn/fin,syn,rst,ack", over: {rate: 1/s, per: from}, then: drop}
services:
  - {name: web, port: [tcp/80, tcp/443]}
  - {name: ssh, port: tcp/22, from: $office}
  - {name: dns, port: dns}
`

// TestEntry compares the entries of lines that the guide for users of ufw does not have.
func TestEntry(t *testing.T) {
	t.Parallel()
	p := parsed(t)
	for _, row := range []struct{ verb, line, list, want string }{
		{"allow", "tcp/8080 from 2001:db8:: name a", "services", `{name: a, port: tcp/8080, from: "2001:db8::"}`},
		{"allow", "from $office to any port ssh,8080 proto tcp", "services", "{name: ssh-tcp-8080, port: [tcp/ssh, tcp/8080], from: $office}"},
		{"allow", "to local port 22", "rules", "{name: port-22-to-local, to: local, port: 22, then: pass}"},
		{"allow", "web-port", "", "port must be"},
		{"allow", "ssh", "services", "{name: ssh-2, port: ssh}"},
		{"deny", "192.0.2.1-192.0.2.9", "rules", "{name: deny-from-192.0.2.1-192.0.2.9, from: 192.0.2.1-192.0.2.9, then: drop}"},
		{"deny", "$office", "rules", "{name: deny-from-office, from: $office, then: drop}"},
		{"deny", "proto icmp from any to 192.0.2.1", "rules", "{name: deny-icmp-to-192.0.2.1, to: 192.0.2.1, proto: icmp, then: drop}"},
		{"limit", "22", "rules", `{name: limit-tcp-22, port: tcp/22, flags: "syn/fin,syn,rst,ack", over: {rate: 12/min, per: from, burst: 6, max: 100000}, then: drop}`},
	} {
		r, err := shorthand.Parse(shorthand.Verb(row.verb), strings.Fields(row.line))
		if err != nil {
			if row.list != "" || !strings.HasPrefix(err.Error(), row.want) {
				t.Errorf("%s %s: %v", row.verb, row.line, err)
			}
			continue
		}
		list, e, err := r.Entry(p)
		if err != nil || list != row.list || e.Line() != row.want {
			t.Errorf("%s %s: %s %s, %v, want %s", row.verb, row.line, list, e.Line(), err, row.want)
		}
	}
}

// TestMistakes reads lines with mistakes. The error must name the word, and have a remedy.
func TestMistakes(t *testing.T) {
	t.Parallel()
	p := parsed(t)
	for _, row := range []struct{ line, want, hint string }{
		{"tcp/99999", `got "tcp/99999"`, ""},
		{"htps", `got "htps"`, "did you mean https?"},
		{"tcp:8080", `"tcp:8080" is not a port`, "write tcp/8080"},
		{"300.1.1.1", `"300.1.1.1" is neither an address nor a port`, "203.0.113.7"},
		{"tcp", "tcp is a protocol", "write proto tcp"},
		{"25/tcp proto udp", `port "25/tcp" is not of udp`, "one protocol"},
		{"22 port 23", "port is there twice", "once"},
		{"22 frm 192.0.2.1", `unknown word "frm"`, `did you mean "from"?`},
		{"22 from", "from: the value is missing", "from 203.0.113.0/24"},
		{"22 from 300.0.0.1", `from must be an address, a prefix, a range, $SET, local or any, got "300.0.0.1"`, ""},
		{"from 192.0.2.1/33", `"192.0.2.1/33"`, ""},
		{"22 from {x}", `got "{x}"`, ""},
		{"22,}", `got "22,}"`, ""},
		{"22 name a:}", `got "a:}"`, ""},
		{"any", `got "any"`, ""},
		{"from any", "all packets", "name a port"},
		{"out 25", "out is not a word", "where they come in"},
		{"in on eth0 out on eth1 to 192.0.2.1", "out is not a word", "name the network behind a device with `to`"},
		{"Apache", `got "Apache"`, "programs have no profiles"},
		{"from 192.0.2.1 to any app Samba", "app is not a word", "programs have no profiles"},
		{"proto gre to any port 5", "", ""},
		{"in on eth0 to any port 80", "a rule holds on all devices", "leave `on` out"},
		{"in on eth7 to any port 80", "does not filter this device", "devices: [eth0, eth1, eth7]"},
		{"22 from $ofice", "set that is not declared", "$office"},
		{"8080 name web", "the name web is taken by an entry of services, line 8", "another name"},
	} {
		r, err := shorthand.Parse(shorthand.Allow, strings.Fields(row.line))
		if err == nil {
			if _, err = r.Find(p); err == nil {
				_, _, err = r.Entry(p)
			}
		}
		var wrong *wording.Error
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Text, row.want) || !strings.Contains(wrong.Hint, row.hint) {
			t.Errorf("%s: %v, hint %q", row.line, err, wrong)
		}
	}
}

// TestFind finds entries by lines with another spelling.
func TestFind(t *testing.T) {
	t.Parallel()
	p := parsed(t)
	for _, row := range []struct{ verb, line, want string }{
		{"", "25/tcp", "mail"},
		{"deny", "proto tcp to any port smtp", "mail"},
		{"allow", "tcp/25", ""},
		{"allow", "443,80/tcp", "web"},
		{"", "80/tcp", ""},
		{"allow", "53", "dns"},
		{"limit", "ssh", "few"},
		{"", "tcp/22", "few"},
		{"allow", "ssh from $office", "ssh"},
	} {
		r, err := shorthand.Parse(shorthand.Verb(row.verb), strings.Fields(row.line))
		if err != nil {
			t.Errorf("%s %s: %v", row.verb, row.line, err)
			continue
		}
		found, err := r.Find(p)
		var names []string
		for _, f := range found {
			names = append(names, f.Name)
		}
		if err != nil || strings.Join(names, " ") != row.want {
			t.Errorf("%s %s: found %q, %v", row.verb, row.line, names, err)
		}
	}
}

// TestComment gives a comment of several lines. It must become one line.
func TestComment(t *testing.T) {
	t.Parallel()
	r, err := shorthand.Parse(shorthand.Allow, []string{"tcp/80", "comment", " the\r\n\tweb\n"})
	if err != nil || r.Comment != "the web" {
		t.Errorf("the comment is %q, %v", r.Comment, err)
	}
}

func parsed(t *testing.T) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
