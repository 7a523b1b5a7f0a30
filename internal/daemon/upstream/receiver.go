// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/generation"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/policy"
)

// Owner is the owner of the temporary rules of received routes.
const Owner = "flowspec"

// Rules is where a Receiver writes rules. control.Instance implements it.
type Rules interface {
	RunningPolicy(ctx context.Context) (control.RunningPolicy, error)
	ChangeTemporary(ctx context.Context, change func([]manifest.Temporary) ([]manifest.Temporary, error)) error
}

// Routes is the source of routes, `floodwall-bgp`. wire.Client implements it.
type Routes interface {
	Received(ctx context.Context) (wire.Received, error)
	Status(ctx context.Context) (wire.Status, error)
}

// Receiver makes the temporary rules match the received routes.
type Receiver struct {
	Rules  Rules
	Routes Routes
	Report func(text string, err error) // called with each action and each error

	book    book
	began   time.Time           // when routes were first read
	wasUp   map[netip.Addr]bool // routers that have had an established session since `began`
	bad     map[string]refused  // routes whose rules could not be loaded, by the name of the first rule
	changes budget
	failed  string // the last error, "" when it has disappeared
	said    map[Kind]string

	mutex   sync.Mutex
	figures Figures
}

// Figures contains counts of a Receiver.
type Figures struct {
	Routes  int          // number of routes that are obeyed
	Rules   int          // number of rules in force for these routes
	Refused map[Kind]int // number of routes that are not obeyed, by the kind of refusal
	Changes uint64       // number of changes of the rules in force
}

// The times of a Receiver.
const (
	look  = time.Second
	lasts = time.Hour        // the lifetime of a rule, when no daemon renews it
	renew = 30 * time.Minute // a rule is renewed when it ends within this time
	pause = 5 * time.Minute  // how long a rule that could not be loaded is not tried again
)

// Run follows the running policies and the received routes, until ctx ends. The rules stay when it ends, and the next daemon continues with them.
func (r *Receiver) Run(ctx context.Context) error {
	periodic.Run(ctx, look, func() {
		switch err := r.step(ctx, time.Now()); {
		case err == nil:
			r.failed = ""
		case errors.Is(err, datapath.ErrLocked): // another command changes the policy: the next step comes soon
		case ctx.Err() == nil && err.Error() != r.failed:
			r.failed = err.Error()
			r.Report("", fmt.Errorf("flowspec: %w", err))
		}
	})
	return nil
}

// Figures returns the present counts.
func (r *Receiver) Figures() Figures {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	f := r.figures
	f.Refused = maps.Clone(f.Refused)
	return f
}

// step performs the actions that are due. All changes since the last step are one transaction.
func (r *Receiver) step(ctx context.Context, now time.Time) error {
	w, err := r.Rules.RunningPolicy(ctx)
	if errors.Is(err, datapath.ErrNotLoaded) {
		return nil
	} else if err != nil {
		return err
	}
	own, others := generation.Owned(manifest.InForce(w.Temporary, now), Owner)
	u := w.Daemon.Upstream
	if u == nil || u.Receive.Max == 0 {
		r.book, r.began, r.bad = book{}, time.Time{}, nil
		r.note(&decided{}, 0)
		return r.put(ctx, own, nil, now)
	}
	if r.began.IsZero() {
		r.began, r.wasUp, r.bad = now, map[netip.Addr]bool{}, map[string]refused{}
	}
	var received wire.Received
	status, asked := r.Routes.Status(ctx)
	if asked == nil {
		received, asked = r.Routes.Received(ctx)
	}
	if asked == nil && len(received.Routes) > mostRoutes {
		asked = fmt.Errorf("floodwall-bgp has %d routes: the first %d are looked at", len(received.Routes), mostRoutes)
	}
	sessions := map[netip.Addr]session{}
	for _, s := range status.Sessions {
		is := session{asked == nil && s.State == wire.Established, s.Restarting, s.Lost}
		sessions[s.Peer] = is
		r.wasUp[s.Peer] = r.wasUp[s.Peer] || is.up()
	}
	r.book.take(received.Routes, sessions, now)
	d := r.decide(r.book.held(u, now), u, own, min(u.Receive.Max, generation.Free(others)), now)
	for _, peer := range received.Left {
		d.refuse(&wire.Route{Peer: peer}, refuse(Excess, "none of its routes is looked at, as all together are too large"))
	}
	d.rules = append(d.rules, r.left(d.rules, own, sessions, u, now)...)
	err = r.put(ctx, own, d.rules, now)
	r.note(d, len(d.rules))
	return errors.Join(err, asked)
}

// left returns rules of an earlier daemon whose router has had no session since this daemon started. They stay for the router's restart time. The
// time starts with the loss of the router's session if that is known.
func (r *Receiver) left(rules, own []manifest.Temporary, sessions map[netip.Addr]session, u *policy.Upstream, now time.Time) (list []manifest.Temporary) {
	for _, t := range own {
		text, _, _ := strings.Cut(t.Why, announces)
		peer, err := netip.ParseAddr(text)
		known := slices.ContainsFunc(rules, func(w manifest.Temporary) bool { return w.Name == t.Name })
		since := r.began
		if lost := sessions[peer].lost; !lost.IsZero() && lost.Before(since) {
			since = lost
		}
		if err == nil && !known && !r.wasUp[peer] && now.Sub(since) < restartTime(u, peer) {
			t.Until, t.Ends = now.Add(lasts), 0
			list = append(list, t)
		}
	}
	return list
}

// put replaces the rules in force by the wanted rules, in one transaction, unless they are the same.
func (r *Receiver) put(ctx context.Context, own, rules []manifest.Temporary, now time.Time) error {
	same := slices.EqualFunc(own, rules, func(t, w manifest.Temporary) bool {
		return t.Name == w.Name && t.Rule == w.Rule && t.Until.Sub(now) > renew
	})
	if same || !r.changes.take(now) {
		return nil
	}
	began := map[string]time.Time{}
	for _, t := range own {
		began[t.Name] = t.Began
	}
	list := slices.Clone(rules)
	added := 0
	for i := range list {
		if list[i].Began = began[list[i].Name]; list[i].Began.IsZero() {
			list[i].Began = now
			added++
		}
	}
	err := r.Rules.ChangeTemporary(ctx, func(all []manifest.Temporary) ([]manifest.Temporary, error) {
		_, others := generation.Owned(all, Owner)
		return append(others, list[:min(len(list), generation.Free(others))]...), nil
	})
	if err != nil {
		r.suspect(rules, began, err, now)
		return err
	}
	r.mutex.Lock()
	r.figures.Changes++
	r.mutex.Unlock()
	if removed := len(own) + added - len(list); added+removed > 0 {
		text := fmt.Sprintf("flowspec: %d rules of received routes are in force, %d new, %d removed", len(list), added, removed)
		if added == 1 {
			text += "; " + list[slices.IndexFunc(list, func(t manifest.Temporary) bool { return began[t.Name].IsZero() })].Why
		}
		r.Report(text, nil)
	}
	return nil
}

// suspect handles the case that rules cannot be loaded together with new rules. It refuses the new rules for a while. Otherwise a bad rule could keep
// withdrawn rules in force, because no change succeeds.
func (r *Receiver) suspect(rules []manifest.Temporary, began map[string]time.Time, err error, now time.Time) {
	if errors.Is(err, datapath.ErrLocked) || errors.Is(err, control.ErrOnTrial) || errors.Is(err, context.Canceled) {
		return
	}
	for _, w := range rules {
		if began[w.Name].IsZero() {
			r.bad[w.Name] = refused{refuse(Unsupported, "its rules could not be loaded: %v", err), now.Add(pause)}
		}
	}
}

// refused contains the reason why a route is refused, and until when.
type refused struct {
	why   *Refusal
	until time.Time
}

// note records the counts. It reports once for each kind of refusal why routes are refused.
func (r *Receiver) note(d *decided, rules int) {
	r.mutex.Lock()
	r.figures.Routes, r.figures.Rules, r.figures.Refused = d.routes, rules, d.refused
	r.mutex.Unlock()
	if r.said == nil {
		r.said = map[Kind]string{}
	}
	for _, k := range Kinds {
		text := d.example[k]
		if text != "" && r.said[k] == "" {
			if n := d.refused[k]; n > 1 {
				text += fmt.Sprintf("; so are %d others", n-1)
			}
			r.Report("flowspec: "+strings.ReplaceAll(text, "\n", " "), nil)
		}
		r.said[k] = text
	}
}

// budget limits the number of transactions (a token bucket). So a router that sends and withdraws routes all the time costs this host little CPU
// time. The rules then follow the routes late.
type budget struct {
	used int
	last time.Time
}

const (
	changesAtOnce = 10
	changeEvery   = 3 * time.Second
)

func (b *budget) take(now time.Time) bool {
	if n := int(now.Sub(b.last) / changeEvery); n > 0 {
		b.used, b.last = max(0, b.used-min(n, changesAtOnce)), now
	}
	if b.used == changesAtOnce {
		return false
	}
	b.used++
	return true
}
