// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// memorySet has the bans of a netfilter set. It stores only what filterSpace needs to decide about them.
type memorySet struct{ has map[netip.Prefix]Ban }

func (s *memorySet) block(bans []Ban) {
	var held []netfilter.Element
	for p, b := range s.has {
		held = append(held, netfilter.Element{Prefix: p, Comment: b.Text(), Timeout: b.length()})
	}
	space := newFilterSpace(manifest.Set{Max: 64}, held)
	for _, b := range bans {
		_ = space.take(b) // a refused ban stays outside
	}
	s.has = space.has
}

// TestFleetGivesWay fills a set. Bans of the fleet must not evict bans of this host's programs. Bans of these programs must evict bans of the fleet
// first, regardless of which ban ends first.
func TestFleetGivesWay(t *testing.T) {
	const capacity = 64
	m := addrs.NewDynamicMemory(capacity)
	if err := m.Format(capacity); err != nil {
		t.Fatal(err)
	}
	d, err := addrs.OpenDynamic(m)
	if err != nil {
		t.Fatal(err)
	}
	xdp, filter := NewXDPSet(d.Sets[0], manifest.Set{Name: "bans", Max: capacity}), &memorySet{}
	ban := func(from, n int, of Ban) {
		var bans []Ban
		for i := range n {
			b := of
			b.Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte((from + i) >> 8), byte(from + i)}), 32)
			bans = append(bans, b)
		}
		if _, err := xdp.Block(context.Background(), bans); err != nil {
			t.Fatal(err)
		}
		filter.block(bans)
	}
	check := func(when string, local, fleet int) {
		t.Helper()
		list, err := xdp.List(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var other []Ban
		for _, b := range filter.has {
			other = append(other, b)
		}
		for name, bans := range map[string][]Ban{"XDP": list, "netfilter": other} {
			of := map[Origin]int{}
			for _, b := range bans {
				of[b.Origin]++
			}
			if of[Automatic] < local || of[Fleet] > fleet {
				t.Errorf("%s, %s: %d bans of this host and %d of the fleet, want at least %d and at most %d", when, name, of[Automatic], of[Fleet], local, fleet)
			}
		}
	}
	local, fleet := Ban{Until: After(time.Minute), Rule: "flooding"}, Ban{Until: After(time.Hour), Origin: Fleet, Why: "web-2: scans"}
	ban(0, 30, local)
	ban(100, 40, fleet) // 18 of these bans fit
	check("the fleet fills the set", 30, 18)
	ban(30, 10, local)
	check("this host bans in the full set", 40, 16)
	ban(40, 8, local)
	ban(200, 40, fleet)
	check("the fleet wants more", 48, 4)
}
