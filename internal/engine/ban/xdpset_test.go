// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// TestOwnersOfManyReasons adds entries with more different reasons than a set stores. Further entries must lose their reason, but not their owner.
// This must also hold when the entries are copied to the set of another policy.
func TestOwnersOfManyReasons(t *testing.T) {
	t.Parallel()
	const n = 600
	e := manifest.Set{Name: "bans", Max: 2 * n}
	m := addrs.NewDynamicMemory(e.Max, e.Max)
	if err := m.Format(e.Max, e.Max); err != nil {
		t.Fatal(err)
	}
	d, err := addrs.OpenDynamic(m)
	if err != nil {
		t.Fatal(err)
	}
	origins := []Origin{Suricata, Fail2ban, CrowdSec, Fleet, Automatic, Manual}
	var bans []Ban
	var prefixes []netip.Prefix
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		b := Ban{Prefix: p, Until: After(time.Hour), Why: fmt.Sprint("reason ", i), Origin: origins[i%len(origins)]}
		if b.Origin == Automatic {
			b.Rule = fmt.Sprint("rule: ", i)
		}
		prefixes, bans = append(prefixes, p), append(bans, b)
	}
	if o, err := NewXDPSet(d.Sets[0], e).Block(t.Context(), bans); err != nil || len(o.Changed) != n {
		t.Fatalf("%+v, %v", o, err)
	}
	other := addrs.NewDynamicMemory(e.Max)
	if err := other.Format(e.Max); err != nil {
		t.Fatal(err)
	}
	next, err := addrs.OpenDynamic(other)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Sets[0].Copy(d.Sets[0], Now()); err != nil {
		t.Fatal(err)
	}
	for _, set := range []*addrs.DynamicSet{d.Sets[0], next.Sets[0]} {
		s := NewXDPSet(set, e)
		list, err := s.List(t.Context())
		if err != nil || len(list) != n {
			t.Fatalf("%d entries, %v", len(list), err)
		}
		wrong := 0
		for _, b := range list {
			a := b.Prefix.Addr().As4()
			i := int(a[2])<<8 | int(a[3])
			if b.Origin != bans[i].origin() || b.Why != "" && b.Text() != bans[i].Text() {
				wrong++
			}
		}
		if wrong > 0 {
			t.Errorf("%d of %d entries are of another origin than their bans", wrong, n)
		}
		for i, b := range bans {
			if b.Origin == Fail2ban {
				if o, err := s.Unblock(t.Context(), prefixes[i:i+1], Owner{Fail2ban, b.Why}); err != nil || len(o.Changed) != 1 {
					t.Fatalf("unblocking %s for its reason: %+v, %v", prefixes[i], o, err)
				}
			}
		}
		for _, origin := range origins {
			if origin == Fail2ban {
				continue
			}
			var own []netip.Prefix
			for i, b := range bans {
				if b.origin() == origin {
					own = append(own, prefixes[i])
				}
			}
			if o, err := s.Unblock(t.Context(), own, Owner{Origin: origin}); err != nil || len(o.Changed) != len(own) {
				t.Errorf("unblocking for %s: %d of %d, %v", origin, len(o.Changed), len(own), err)
			}
		}
	}
}
