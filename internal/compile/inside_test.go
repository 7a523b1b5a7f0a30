// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestInside sends packets through another device, and through a device whose name looks like that of a VLAN device of the policy's device. Only
// packets from a device of the policy may be dropped and counted. In some chains the first line tests the device, and in others each rule does.
func TestInside(t *testing.T) {
	testutil.RequireTool(t, "nft")
	for device, lists := range map[string][]struct {
		devices []string
		outside bool
	}{
		"eth0":   {{[]string{"eth9", "eth0"}, true}, {[]string{"eth", "eth0.7"}, false}},
		"eth0.7": {{[]string{"eth0"}, true}, {[]string{"eth", "eth0.70"}, false}},
	} {
		t.Run(device, func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			d := &differential{judge: testutil.NewJudge(t, device, "eth1", false, "192.0.2.1/24", "2001:db8::1/64")}
			for _, text := range insidePolicies() {
				for _, of := range lists {
					d.inside(t, text, of.devices, of.outside)
				}
			}
		})
	}
}

// insidePolicies returns policies whose chains have all shapes.
func insidePolicies() (list []string) {
	var many strings.Builder
	for n := range 12 {
		fmt.Fprintf(&many, ", {name: t%d, ttl: %d, port: tcp/%d, then: %s}", n, 9-n%2, n, []string{"drop", "pass"}[n%2])
	}
	for _, policy := range []string{
		"rules: [{name: r, from: 198.51.100.0/24, port: udp/53, then: drop}, {name: s, family: ipv6, proto: udp, then: drop}]",
		"rules: [{name: r, to: local, proto: udp, then: drop}]",
		"rules: [{name: p, from: 198.51.100.1, to: 192.0.2.0/24, placement: raw, then: pass}, {name: r, proto: udp, then: drop}]",
		"rules: [{name: r, proto: udp, then: drop}" + many.String() + "]",
		"rules: [{name: r, proto: udp, over: {rate: 1/h, burst: 1}, then: drop}]",
		"default: drop\nrules: [{name: r, from: 198.51.100.0/24, to: 192.0.2.0/24, then: pass}]",
	} {
		for _, stage := range []string{"raw", "filter"} {
			list = append(list, "checks: off\nplacement: "+stage+"\n"+policy)
		}
	}
	return list
}

// inside checks how a policy for some devices decides packets that arrive by another device or, if outside is set, by one of these devices.
func (d *differential) inside(t *testing.T, text string, devices []string, outside bool) {
	t.Helper()
	s := subject.Lower(t, text)
	if strings.Contains(text, "local") {
		s.Insert(t, "local", "192.0.2.1/32 2001:db8::1/128")
	}
	pl, err := plan.Hoist(s.Program, plan.TargetNftables)
	if err != nil {
		t.Fatal(err)
	}
	x, err := nftables.Generate(pl, nftables.Options{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	subject.Nft(t, x.Script, "-f", "-")
	defer subject.Nft(t, "", "delete", "table", "inet", x.Table)
	frames := repeated(t, `udp 198.51.100.1:5 > 192.0.2.1:53
udp [2001:db8:1::9]:5 > [2001:db8::1]:53
udp 198.51.100.1:5 > 203.0.113.5:53`)
	fates, err := d.judge.Fates(frames)
	if err != nil {
		t.Fatal(err)
	}
	name := subject.NamesOf(x.Checks, x.Rules, x.Default)
	want := map[string]int{}
	if outside {
		want = s.CountsOf(frames, name)
	}
	drops := 0
	for _, f := range fates {
		if f.Dropped != "" {
			drops++
		}
	}
	got := map[string]int{}
	for name, n := range subject.Settled(t, x.Table, total(want)) {
		if !strings.HasPrefix(name, "essential-") { // the kernel itself sends packets that these rules count, such as reports of multicast listeners
			got[name] = int(n)
		}
	}
	if !maps.Equal(got, want) || outside != (drops > 0) {
		t.Errorf("%d dropped, counters %v, want %v, devices %q\n%s", drops, got, want, devices, x.Script)
	}
}
