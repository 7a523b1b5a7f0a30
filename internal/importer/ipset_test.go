// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/importer"
)

// TestIpsetTypes has sets of types without an equal. The report must name the type and the reason.
func TestIpsetTypes(t *testing.T) {
	for _, tt := range []struct{ create, entry, why string }{
		{"hash:net,net family inet", "192.0.2.0/24,198.51.100.0/24", "of type hash:net,net, with pairs of addresses"},
		{"hash:ip,port,ip", "192.0.2.1,tcp:80,198.51.100.1", "of type hash:ip,port,ip, with pairs of addresses"},
		{"hash:mac", "02:00:00:00:00:01", "of type hash:mac, with hardware addresses"},
		{"bitmap:ip,mac range 192.0.2.0/24", "192.0.2.1,02:00:00:00:00:01", "of type bitmap:ip,mac, with hardware addresses"},
		{"hash:net,iface", "192.0.2.0/24,eth0", "of type hash:net,iface, with marks or devices"},
	} {
		sets := importer.Source{Name: "sets", Data: []byte("create x " + tt.create + "\nadd x " + tt.entry + "\n")}
		r := imported(t, importer.Iptables, sets, rules("ACCEPT", "INPUT -m set --match-set x src,src -j DROP"))
		said := false
		for _, l := range r.Lost {
			said = said || l.File == "sets" && strings.HasPrefix(l.Why, "set x, "+tt.why)
		}
		if !said {
			t.Errorf("%s: lost %v", tt.create, r.Lost)
		}
	}
}

// TestIpsetOptions has options of create and add. Some change the entries of a set; others only change ipset's
// output.
func TestIpsetOptions(t *testing.T) {
	for _, tt := range []struct {
		text string
		want string // text of the policy's sets, of a loss, or of the error
	}{
		{"create -exist b hash:net family inet maxelem 131072\nadd -exist b 198.51.100.0/24", "b: [198.51.100.0/24]"},
		{"create b -exist hash:net\nadd b 198.51.100.0/24 -exist", "b: [198.51.100.0/24]"},
		{"create b iphash -!\nadd b 198.51.100.7", "b: [198.51.100.7]"},
		{"create b hash:ip netmask 24\nadd b 198.51.100.0", "b: [198.51.100.0/24]"},
		{"create b hash:ip -6 netmask 48\nadd b 2001:db8::", "b: [2001:db8::/48]"},
		{"create b hash:ip bitmask 255.255.255.0\nadd b 198.51.100.0", "b: [198.51.100.0/24]"},
		{"create b hash:ip bitmask 255.255.0.255\nadd b 198.51.0.7", "whose bitmask 255.255.0.255 is that of no prefix"},
		{"create b bitmap:ip range 10.0.0.0/8 netmask 16\nadd b 10.1.0.0", "b: [10.1.0.0/16]"},
		{"create b hash:ip shadow 24\nadd b 198.51.100.0", `f:1: set b: the option "shadow" is not known`},
		{"create b hash:ip netmask", `f:1: set b: the option "netmask" is not known, or lacks its argument`},
		{"create b hash:cidr\nadd b 198.51.100.0", `f:1: set b: "hash:cidr" is no type of set`},
		{"create b hash:ip\nadd b 198.51.100.0 shadow 24", `the option "shadow" is not known; the set is imported without this entry`},
	} {
		r, err := importer.Import(t.Context(), []importer.Source{{Name: "f", Data: []byte(tt.text + "\n")}}, importer.Options{Format: importer.Ipset})
		said := fmt.Sprint(err)
		if err == nil {
			said = fmt.Sprint(r.Policy, r.Lost)
		}
		if !strings.Contains(said, tt.want) {
			t.Errorf("%q: want %q in\n%s", tt.text, tt.want, said)
		}
	}
}
