// SPDX-License-Identifier: Apache-2.0

package suggest

import "testing"

// TestMerge merges rules. Near-duplicates must keep their keys. Merged rules against reflectors must keep the tests that both rules have.
func TestMerge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ a, b, want string }{
		{`sport: udp/53, length: 730-1425`, `sport: udp/53, length: 730-1426`, `sport: udp/53, length: 730-1426`},
		{`sport: udp/123, length: 468, payload: {at: {offset: 0, bytes: "|d7|,"}}`, `sport: udp/389, length: [1400, 1434]`, `sport: [udp/123, udp/389], length: 468-1434`},
		{`sport: [udp/123, udp/389], ttl: 50`, `sport: udp/53, ttl: 52`, `sport: [udp/123, udp/389, udp/53], ttl: 50-52`},
		{`sport: tcp/80, flags: "syn,ack/fin,syn,rst,psh,ack,urg"`, `sport: tcp/443, flags: "syn,ack/fin,syn,rst,psh,ack,urg"`, `sport: [tcp/443, tcp/80], flags: "syn,ack/fin,syn,rst,psh,ack,urg"`},
		{`sport: tcp/80, flags: "syn,ack/fin,syn,rst,psh,ack,urg"`, `sport: tcp/80, flags: "ack/fin,syn,rst,psh,ack,urg"`, ""},
		{`sport: tcp/80`, `sport: udp/80`, ""},
		{`proto: udp, payload: {at: {offset: 0, bytes: "|d7|"}}`, `proto: udp, payload: {at: {offset: 0, bytes: "|d8|"}}`, ""},
		{`sport: udp/123`, `fragment: later, proto: udp`, ""},
	} {
		read := func(tests string) *Signature {
			g, _, err := ReadSignature("{name: a, " + tests + ", then: drop}")
			if err != nil {
				t.Fatalf("%s: %v", tests, err)
			}
			return g
		}
		got := ""
		if merged := Merge(read(tt.a), read(tt.b)); merged != nil {
			got = merged.As("merged", true).Line()
		}
		want := ""
		if tt.want != "" {
			want = "{name: merged, " + tt.want + ", observe: true, then: drop}"
		}
		if got != want {
			t.Errorf("%s and %s: %s, want %s", tt.a, tt.b, got, want)
		}
	}
}
