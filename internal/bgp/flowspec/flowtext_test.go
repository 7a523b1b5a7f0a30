// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"errors"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// TestFlow has flags of `bgp announce`. Each line has the expected flow, or the beginning of the error, followed by ! and its hint.
func TestFlow(t *testing.T) {
	t.Parallel()
	one := func(text string) []string { return []string{text} }
	for _, test := range []struct {
		to     string
		fields Fields
		want   string
	}{
		{"192.0.2.7", Fields{}, "to 192.0.2.7/32"},
		{"::ffff:192.0.2.7", Fields{}, "to 192.0.2.7/32"},
		{"2001:db8::/32", Fields{From: "2001:db8:1::/48", Proto: []string{"icmpv6"}, ICMP: one("128-129")}, "to 2001:db8::/32 from 2001:db8:1::/48 proto icmpv6 icmp 128-129"},
		{"192.0.2.7", Fields{Proto: []string{"udp", "6"}, Port: one("53"), SPort: []string{"1000-2000", "123"}, Length: one("512-65535")},
			"to 192.0.2.7/32 proto udp,tcp port 53 sport 1000-2000,123 length 512-65535"},
		{"192.0.2.7", Fields{Proto: one("tcp"), Flags: "syn/syn,ack", Rate: "8mbit/s"}, "to 192.0.2.7/32 proto tcp flags syn/syn,ack over 8e+06bit/s"},
		{"192.0.2.7", Fields{Proto: one("tcp"), Flags: "syn"}, "to 192.0.2.7/32 proto tcp flags syn/syn"},
		{"192.0.2.7", Fields{Proto: one("tcp"), Flags: "none/syn"}, "to 192.0.2.7/32 proto tcp flags none/syn"},
		{"192.0.2.7", Fields{Proto: one("gre"), Fragment: true}, "to 192.0.2.7/32 proto gre fragment"},
		{"192.0.2.7/24", Fields{}, "!192.0.2.0/24 is the prefix"},
		{"fe80::1%eth0", Fields{}, "!no address and no prefix; write an address"},
		{"192.0.2.7", Fields{From: "x"}, "!flag --from; write a prefix"},
		{"192.0.2.7", Fields{From: "2001:db8::/32"}, "!no prefix of the destination's family"},
		{"192.0.2.7", Fields{Proto: one("upd")}, `!"upd" is no protocol; write a name`},
		{"192.0.2.7", Fields{Proto: one("256")}, "!is no protocol"},
		{"192.0.2.7", Fields{Proto: one("udp"), Port: one("2-1")}, `!flag --port: "2-1"; write a number or a range`},
		{"192.0.2.7", Fields{Proto: one("icmp"), ICMP: one("256")}, "!up to 255"},
		{"192.0.2.7", Fields{Port: one("53")}, "!ports need a protocol that has ports; --proto udp"},
		{"192.0.2.7", Fields{Proto: one("tcp"), Flags: "sin"}, "!flag --flags: it must be TCP flags; syn/syn,ack"},
		{"192.0.2.7", Fields{Proto: one("tcp"), Flags: "syn/ack"}, "!syn is not in the mask"},
		{"192.0.2.7", Fields{Proto: one("tcp"), Flags: "ece"}, "!TCP flags are both set and not set, or unknown"},
		{"192.0.2.7", Fields{Proto: one("udp"), Flags: "syn"}, "!need the protocol tcp"},
		{"192.0.2.7", Fields{Rate: "10"}, `!"10" is no rate; 10mbit/s`},
		{"192.0.2.7", Fields{Rate: "0bit/s"}, "!no rate"},
	} {
		f, err := test.fields.Flow(test.to)
		parts, refused := strings.CutPrefix(test.want, "!")
		if !refused {
			if err != nil || f.String() != test.want {
				t.Errorf("%+v: %s, %v, want %s", test.fields, f, err, test.want)
			}
			continue
		}
		var wrong *wording.Error
		if !errors.As(err, &wrong) {
			t.Errorf("%+v: %v, want an error about a flag with %s", test.fields, err, parts)
			continue
		}
		for part := range strings.SplitSeq(parts, "; ") {
			if !strings.Contains(wrong.Error()+" "+wrong.Hint, part) {
				t.Errorf("%+v: %v, %s: want %s", test.fields, wrong, wrong.Hint, part)
			}
		}
	}
}
