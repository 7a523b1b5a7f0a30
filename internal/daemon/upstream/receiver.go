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

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
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

// Rules are where a Receiver enters rules. control.Instance has them.
type Rules interface {
	RunningPolicy(ctx context.Context) (control.RunningPolicy, error)
	ChangeTemporary(ctx context.Context, change func([]manifest.Temporary) ([]manifest.Temporary, error)) error
}

// Routes is `floodwall-bgp`. wire.Client is one.
type Routes interface {
	Received(ctx context.Context) (wire.Received, error)
	Status(ctx context.Context) (wire.Status, error)
}

// Receiver keeps temporary rules as received routes ask for them.
type Receiver struct {
	Rules  Rules
	Routes Routes
	Report func(text string, err error) // is told what was done, or what could not be

	book    book
	began   time.Time           // since when routes are asked for
	wasUp   map[netip.Addr]bool // routers with which a session has been established since then
	bad     map[string]refused  // by the name of the first rule, routes whose rules could not be loaded
	changes budget
	failed  string // the last error, until it has gone
	said    map[Kind]string

	mutex   sync.Mutex
	figures Figures
}

// Figures are how a Receiver stands.
type Figures struct {
	Routes  int          // that are obeyed
	Rules   int          // in force for them
	Refused map[Kind]int // routes that are not obeyed
	Changes uint64       // of the rules in force
}

// Times of a Receiver.
const (
	look  = time.Second
	lasts = time.Hour        // a rule ends so much later, when no daemon is there that renews it
	renew = 30 * time.Minute // a rule that ends earlier is renewed
	pause = 5 * time.Minute  // for which rules that could not be loaded are not tried again
)

// Run follows the policies that run and the routes that come, until ctx ends. Rules stay when it ends: a daemon that
// begins goes on with them.
func (r *Receiver) Run(ctx context.Context) error {
	periodic.Run(ctx, look, func() {
		switch err := r.step(ctx, time.Now()); {
		case err == nil:
			r.failed = ""
		case errors.Is(err, datapath.ErrLocked): // a command changes what runs: the next step comes soon
		case ctx.Err() == nil && err.Error() != r.failed:
			r.failed = err.Error()
			r.Report("", fmt.Errorf("flowspec: %w", err))
		}
	})
	return nil
}

// Figures reads how the receiver stands.
func (r *Receiver) Figures() Figures {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	f := r.figures
	f.Refused = maps.Clone(f.Refused)
	return f
}

// step does what is due. All changes since the last step become one transaction.
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

// left are rules of a daemon before whose router has had no session since this one began: they stay for the time of the router, from when its
// session was lost if that is known.
func (r *Receiver) left(rules []wanted, own []manifest.Temporary, sessions map[netip.Addr]session, u *policy.Upstream, now time.Time) (list []wanted) {
	for _, t := range own {
		text, _, _ := strings.Cut(t.Why, announces)
		peer, err := netip.ParseAddr(text)
		known := slices.ContainsFunc(rules, func(w wanted) bool { return w.Name == t.Name })
		since := r.began
		if lost := sessions[peer].lost; !lost.IsZero() && lost.Before(since) {
			since = lost
		}
		if err == nil && !known && !r.wasUp[peer] && now.Sub(since) < restartTime(u, peer) {
			list = append(list, wanted{flowspec.Rule{Name: t.Name, Line: t.Rule}, t.Why})
		}
	}
	return list
}

// put brings the rules in force to those that are wanted, in one transaction, unless they are the same.
func (r *Receiver) put(ctx context.Context, own []manifest.Temporary, rules []wanted, now time.Time) error {
	same := slices.EqualFunc(own, rules, func(t manifest.Temporary, w wanted) bool {
		return t.Name == w.Name && t.Rule == w.Line && t.Until.Sub(now) > renew
	})
	if same || !r.changes.take(now) {
		return nil
	}
	began := map[string]time.Time{}
	for _, t := range own {
		began[t.Name] = t.Began
	}
	var list []manifest.Temporary
	added := 0
	for _, w := range rules {
		t := manifest.Temporary{Name: w.Name, Owner: Owner, Rule: w.Line, Began: began[w.Name], Until: now.Add(lasts), Why: w.why}
		if t.Began.IsZero() {
			t.Began = now
			added++
		}
		list = append(list, t)
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

// suspect notes that rules cannot be loaded with those that are new. These are refused for a while, so that one of them does not keep what is
// withdrawn in force.
func (r *Receiver) suspect(rules []wanted, began map[string]time.Time, err error, now time.Time) {
	if errors.Is(err, datapath.ErrLocked) || errors.Is(err, control.ErrOnTrial) || errors.Is(err, context.Canceled) {
		return
	}
	for _, w := range rules {
		if began[w.Name].IsZero() {
			r.bad[w.Name] = refused{refuse(Unsupported, "its rules could not be loaded: %v", err), now.Add(pause)}
		}
	}
}

// refused is why a route is refused for a while.
type refused struct {
	why   *Refusal
	until time.Time
}

// note keeps figures, and says once of each kind why routes are refused.
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

// budget is how many transactions there may be: some at once, and then one in a while. So a router that sends and withdraws routes
// all the time costs this host little, and the rules follow it late.
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
