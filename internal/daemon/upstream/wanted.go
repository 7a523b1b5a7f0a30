package upstream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/policy"
)

// announces is behind the address of the router in the reason of a rule.
const announces = " announces: "

// wanted is a rule, and why it is there.
type wanted struct {
	flowspec.Rule
	why string
}

// decided is what was decided about all routes.
type decided struct {
	rules   []wanted
	routes  int // that are obeyed: they drop, or let packets pass
	refused map[Kind]int
	example map[Kind]string // the first of each kind
}

func (d *decided) refuse(r *wire.Route, why *Refusal) {
	d.refused[why.Kind]++
	if text := fmt.Sprintf("a route from %s is refused: %v", r.Peer, why); d.example[why.Kind] == "" || text < d.example[why.Kind] {
		d.example[why.Kind] = text
	}
}

// decide makes rules of routes, at most as many as there are places. Routes that come to the rules in force have theirs first, so that a flood of new
// routes pushes none of them out.
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
			} // else its action is not supported: its packets pass
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
	d.choose(all, of, inForce, places)
	return d
}

// mostEach is how many routes that drop are translated, and how many that let packets pass: each of the first is compared with each of the others.
const mostEach = 256

// few are the routes to translate: of those that drop the ones in force first. With too many that let packets pass no other is obeyed, as it could
// drop what they let pass.
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

// loadable checks rules as they are checked before they are loaded: one that is wrong must not keep others out.
func loadable(rules []flowspec.Rule, now time.Time) error {
	for _, r := range rules {
		if err := generation.Check(manifest.Temporary{Name: r.Name, Owner: Owner, Rule: r.Line, Until: now.Add(lasts)}); err != nil {
			return err
		}
	}
	return nil
}

// choose takes rules while there are places.
func (d *decided) choose(all []flowspec.Translated, of map[string]*wire.Route, inForce map[string]bool, places int) {
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
				d.rules = append(d.rules, wanted{r, from.Peer.String() + announces + t.Flow.String()})
			}
		}
	}
}

// peers are the routers, whose packets no route drops: the session by which a route could be withdrawn must stay.
func peers(u *policy.Upstream) (list []string) {
	for _, p := range u.Peers {
		list = append(list, p.Address.String())
	}
	return list
}

func peerIndex(u *policy.Upstream, r wire.Route) int {
	return slices.IndexFunc(u.Peers, func(p policy.Peer) bool { return p.Address == r.Peer })
}
