// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/policy"
)

// announces is the text after the router's address in the reason of a rule.
const announces = " announces: "

// temporary returns a temporary rule with its reason. It ends after the usual time.
func temporary(r *policy.Rule, why string, now time.Time) manifest.Temporary {
	t := manifest.Temporary{Name: r.Name, Owner: Owner, Until: now.Add(lasts), Why: why}
	t.Set(r)
	return t
}

// decided contains the decisions about all routes.
type decided struct {
	rules   []manifest.Temporary
	routes  int // number of routes that are obeyed, whether they drop or pass packets
	refused map[Kind]int
	example map[Kind]string // the first refusal of each kind
}

func (d *decided) refuse(r *wire.Route, why *Refusal) {
	d.refused[why.Kind]++
	if text := fmt.Sprintf("a route from %s is refused: %v", r.Peer, why); d.example[why.Kind] == "" || text < d.example[why.Kind] {
		d.example[why.Kind] = text
	}
}

// decide makes rules from routes. places is the largest number of rules. Routes with rules in force get their places first, so that a flood of new
// routes cannot displace them.
func (r *Receiver) decide(routes []wire.Route, u *policy.Upstream, own []manifest.Temporary, places int, now time.Time) *decided {
	d := &decided{refused: map[Kind]int{}, example: map[Kind]string{}}
	slices.SortFunc(routes, func(a, b wire.Route) int {
		return cmp.Or(peerIndex(u, a)-peerIndex(u, b), a.Peer.Compare(b.Peer), strings.Compare(string(a.Family)+string(a.NLRI), string(b.Family)+string(b.NLRI)))
	})
	var good []flowspec.Route
	of := map[string]*wire.Route{}
	for i := range routes {
		route, why := check(&routes[i], u)
		if why != nil {
			d.refuse(&routes[i], why)
			if route.Flow.Components == nil {
				continue
			} // the flow is valid, and only the action is not supported: the packets pass
		}
		name := route.Flow.Name()
		if of[name] == nil {
			of[name] = &routes[i]
		}
		good = append(good, route)
	}
	inForce := map[string]bool{}
	for _, t := range own {
		inForce[t.Name] = true
	}
	all := flowspec.Segment(d.few(good, of, inForce), peers(u))
	for i := range all {
		t := &all[i]
		if len(t.Rules) == 0 || inForce[t.Rules[0].Name] {
			continue
		}
		if bad, ok := r.bad[t.Rules[0].Name]; ok && now.Before(bad.until) {
			t.Rules, t.Refused = nil, bad.why
		} else if err := loadable(t.Rules, now); err != nil {
			t.Rules, t.Refused = nil, err
		}
	}
	d.choose(all, of, inForce, places, now)
	return d
}

// mostEach is the largest number of dropping routes, and of passing routes, that are translated. It is limited because each dropping route is
// compared with each passing route.
const mostEach = 256

// few returns the routes to translate. Among dropping routes, those in force come first. If there are too many passing routes, no route is obeyed,
// because a dropping route could drop packets that a passing route lets pass.
func (d *decided) few(good []flowspec.Route, of map[string]*wire.Route, inForce map[string]bool) []flowspec.Route {
	var drops, passes []flowspec.Route
	for _, r := range good {
		if r.Action.Drop {
			drops = append(drops, r)
		} else {
			passes = append(passes, r)
		}
	}
	slices.SortStableFunc(drops, func(a, b flowspec.Route) int {
		rank := map[bool]int{true: 0, false: 1}
		return rank[inForce[a.Flow.Name()]] - rank[inForce[b.Flow.Name()]]
	})
	keep, why := min(len(drops), mostEach), "there are too many routes that drop packets"
	if len(passes) > mostEach {
		keep, why, passes = 0, "there are too many routes that let packets pass", nil
	}
	for _, r := range drops[keep:] {
		d.refuse(of[r.Flow.Name()], refuse(Excess, "%s: more than %d are not looked at", why, mostEach))
	}
	return append(drops[:keep:keep], passes...)
}

// loadable checks rules in the same way as loading does, so that a wrong rule does not prevent the loading of other rules.
func loadable(rules []*policy.Rule, now time.Time) error {
	for _, r := range rules {
		if err := generation.Check(temporary(r, "", now)); err != nil {
			return err
		}
	}
	return nil
}

// choose adds translated rules until there are no more places.
func (d *decided) choose(all []flowspec.Translated, of map[string]*wire.Route, inForce map[string]bool, places int, now time.Time) {
	had := func(t *flowspec.Translated) bool {
		return len(t.Rules) > 0 && inForce[t.Rules[0].Name]
	}
	taken := make([]bool, len(all))
	for _, before := range []bool{true, false} {
		for i := range all {
			t := &all[i]
			if had(t) != before || len(t.Rules) == 0 {
				continue
			}
			if len(t.Rules) > places {
				d.refuse(of[t.Flow.Name()], refuse(Excess, "there are already as many rules as the policy allows under max, or as there can be temporary ones"))
				continue
			}
			taken[i] = true
			places -= len(t.Rules)
		}
	}
	for i, t := range all {
		from := of[t.Flow.Name()]
		switch {
		case t.Refused != nil:
			d.refuse(from, &Refusal{Unsupported, t.Refused})
		case len(t.Rules) == 0 || taken[i]:
			d.routes++
		}
		for _, r := range t.Rules {
			if taken[i] {
				d.rules = append(d.rules, temporary(r, from.Peer.String()+announces+t.Flow.String(), now))
			}
		}
	}
}

// peers returns the addresses of the routers. No route may drop their packets, because the sessions must stay so that routes can be withdrawn.
func peers(u *policy.Upstream) (list []netip.Prefix) {
	for _, p := range u.Peers {
		list = append(list, netip.PrefixFrom(p.Address, p.Address.BitLen()))
	}
	return list
}

func peerIndex(u *policy.Upstream, r wire.Route) int {
	return slices.IndexFunc(u.Peers, func(p policy.Peer) bool { return p.Address == r.Peer })
}
