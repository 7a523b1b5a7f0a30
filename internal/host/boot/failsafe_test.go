// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/policy"
)

// TestFailsafe makes the fail-safes of policies, and checks which packets they pass: SSH from the sources that the policy allows, and from the
// operator's sessions. A fail-safe must be a valid policy.
func TestFailsafe(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/office.txt", "203.0.113.0/24\n2001:db8:1::/48\n")
	ways := []boot.Way{{Client: netip.MustParseAddr("2001:db8:2::"), Port: 2222}}
	for _, row := range []struct {
		name, text string
		ways       []boot.Way
		want       []string // parts of the rules of the fail-safe
		not        string
		noWay      bool
	}{
		{"service", "default: drop\nsets: {office: {file: office.txt}}\nservices: [{name: ssh, port: tcp/22, from: $office}, {name: web, port: tcp/80}]\n",
			nil, []string{`from: [203.0.113.0/24, 2001:db8:1::/48], port: tcp/22`}, "80", false},
		{"rule", "default: drop\nrules: [{from: 192.0.2.0/25, then: pass}, {from: 198.51.100.1, proto: udp, then: pass}, {from: 198.51.100.2, then: drop}]\n",
			nil, []string{`from: 192.0.2.0/25`}, "198.51.100", false},
		{"session", "default: drop\n", ways, []string{`from: "2001:db8:2::", port: [tcp/22, tcp/2222]`}, "operator-2", false},
		{"none", "default: drop\n", nil, nil, "operator", true},
		{"closed though it passes", "default: pass\nboot: closed\n", nil, []string{"{name: operator-1, port: tcp/22, then: pass}"}, "from", false},
		{"rate", "default: drop\nservices: [{name: dns, port: [udp/53]}]\nrules: [{port: tcp/22, flags: syn, then: pass}]\n", nil, nil, "operator", true},
	} {
		text := "devices: [eth0]\n" + row.text
		p, err := policy.Parse(dir+"/p.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		made, note, err := boot.NewFailsafe(p, []string{"eth0"}, row.ways)
		if err != nil || (note != "") != row.noWay {
			t.Errorf("%s: %v, note %q", row.name, err, note)
		}
		for _, part := range append(row.want, "default: drop", "state: [established, related]") {
			if !strings.Contains(made, part) {
				t.Errorf("%s: no %q in\n%s", row.name, part, made)
			}
		}
		_, body, _ := strings.Cut(made, "\n") // without the checksum, whose digits could match
		if strings.Contains(body, row.not) {
			t.Errorf("%s: %q is in\n%s", row.name, row.not, body)
		}
		if q, err := policy.Parse("failsafe", []byte(made)); err != nil || q.Default != policy.Drop {
			t.Errorf("%s: it is no policy: %v\n%s", row.name, err, made)
		}
	}
}
