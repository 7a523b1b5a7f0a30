package importer_test

import (
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/importer"
)

// TestIpsetTypes has sets of types without an equal: the report names the type, and why it has none.
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
