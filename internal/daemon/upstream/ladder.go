// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/bgp/wire"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/policy"
)

// The ladder is the order of the automatic steps: first FlowSpec, then a black hole. A step needs measured harm: packets that are lost before this
// host can drop them. While the filter can drop all packets of an attack, there is no step.
const (
	lineFull    = 0.9              // the line is full from this share of the line rate on
	leastLost   = 100              // least number of packets a second that the device loses
	fullSeconds = 3                // consecutive seconds before the first step
	nextStep    = 30 * time.Second // time with FlowSpec announced and the line still full, before the second step is taken
)

// daemonOwner is the owner of the ladder's announcements.
const daemonOwner = "daemon"

// Ladder makes the announcements that the policy's `auto` allows.
type Ladder struct {
	Side    Side
	Current func() *attack.Report // returns the report of the current attack; nil in quiet times
	Report  func(text string, err error)

	full int                 // consecutive seconds with harm
	last map[string]counters // the last counters, by device
	at   time.Time
	told string

	counted string // the last counted result in this attack
	mu      sync.Mutex
	results map[Result]uint64
}

// Result is the result of a step of the ladder.
type Result string

// The results.
const (
	Announced Result = "announced" // the announcement is sent to routers
	Dampened  Result = "dampened"  // the announcement waits, because the same one ended a short time ago
	Held      Result = "held"      // an announcement for the same address exists, and the next step is not due or not allowed
	Refused   Result = "refused"   // no allowed announcement helps: no target, no such flow, no space at the routers
	DryRun    Result = "dry-run"   // the policy lacks `live: true`
)

// Results contains all results.
var Results = []Result{Announced, Dampened, Held, Refused, DryRun}

// Figures returns the count of each result. A result that is repeated in consecutive seconds counts once.
func (l *Ladder) Figures() map[Result]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.results)
}

// count counts a result for an address or an announcement.
func (l *Ladder) count(r Result, of string) {
	if is := string(r) + " " + of; is != l.counted {
		l.counted = is
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.results == nil {
			l.results = map[Result]uint64{}
		}
		l.results[r]++
	}
}

// Run calls look each second, until ctx ends.
func (l *Ladder) Run(ctx context.Context) {
	for periodic.Wait(ctx, time.Second) {
		if err := l.look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			l.tell("", fmt.Errorf("upstream: %w", err))
		}
	}
}

// tell reports a text, unless the last reported text was the same.
func (l *Ladder) tell(text string, err error) {
	is := fmt.Sprint(text, err)
	if is != l.told {
		l.told = is
		l.Report(text, err)
	}
}

// look measures a second of an attack, and takes a step if the harm requires a step.
func (l *Ladder) look(ctx context.Context, now time.Time) error {
	r := l.Current()
	if r == nil {
		l.full, l.last, l.told, l.counted = 0, nil, "", ""
		return nil
	}
	u, err := l.Side.Policy(ctx)
	if errors.Is(err, ErrNone) || err == nil && u.Auto == policy.StepNone {
		return nil
	} else if err != nil {
		return err
	}
	harm, err := l.measure(r.Devices, u.Line, now)
	if err != nil {
		return err
	}
	if harm == "" {
		l.full = 0
		return nil
	}
	if l.full++; l.full < fullSeconds {
		return nil
	}
	return l.step(ctx, u, r, harm, now)
}

// step announces FlowSpec. If FlowSpec has not reduced the harm and the policy allows a black hole, step announces a black hole.
func (l *Ladder) step(ctx context.Context, u *policy.Upstream, r *attack.Report, harm string, now time.Time) error {
	flow, target, why := FlowOf(u, r.Samples)
	request := Request{Kind: wire.FlowSpec, Flow: flow, Owner: daemonOwner, Why: fmt.Sprintf("attack %s: %s", r.ID, harm), For: u.For}
	list, err := l.Side.Book.List(ctx, now)
	if err != nil {
		return err
	}
	var out *wire.Announcement // the existing announcement for the target
	for i, a := range list {
		if a.Flow.To == target {
			out = &list[i]
		}
	}
	switch {
	case !target.IsValid():
		l.count(Refused, "")
		l.tell(fmt.Sprintf("upstream: %s, and no own address is the target of most packets: nothing is announced", harm), nil)
		return nil
	case out != nil && !out.Out(now):
		l.count(Dampened, out.Key())
		return nil
	case out != nil && (out.Kind == wire.RTBH || now.Sub(out.Start) < nextStep):
		l.count(Held, out.Key())
		return nil
	case out == nil && why == "":
	case u.Auto == policy.StepRTBH:
		request.Kind, request.Flow = wire.RTBH, wire.Flow{To: target}
	case out == nil:
		l.count(Refused, target.String())
		l.tell(fmt.Sprintf("upstream: %s, and FlowSpec would take %s from the network: %s; a person may `floodwall-bgp announce %s --rtbh`", harm, target, why, target.Addr()), nil)
		return nil
	default:
		l.count(Held, out.Key())
		return nil
	}
	err = l.announce(ctx, u, request, now)
	if full, family := (*FullError)(nil), (*FamilyError)(nil); errors.As(err, &full) || errors.As(err, &family) {
		l.count(Refused, target.String())
	}
	return err
}

func (l *Ladder) announce(ctx context.Context, u *policy.Upstream, r Request, now time.Time) error {
	if !u.Live {
		a, err := l.Side.Book.Plan(ctx, u, r, now)
		if err != nil {
			return err
		}
		l.count(DryRun, a.Key())
		l.tell(fmt.Sprintf("upstream: dry run: %s would be announced: %s", a.Key(), r.Why), nil)
		return nil
	}
	a, err := l.Side.Book.Announce(ctx, u, r, now)
	if err != nil {
		return err
	}
	if a.Out(now) {
		l.count(Announced, a.Key())
	} else {
		l.count(Dampened, a.Key())
	}
	l.Report(fmt.Sprintf("upstream: %s is announced from %s to %s: %s", a.Key(), a.Start.UTC().Format(time.TimeOnly), a.End.UTC().Format(time.TimeOnly), r.Why), nil)
	_, err = l.Side.Tell(ctx)
	return err
}

// counters are the counters of a device.
type counters struct{ bytes, lost uint64 }

// measure returns the harm on devices in the last second as text; "" for none.
func (l *Ladder) measure(devices []string, line uint64, now time.Time) (harm string, err error) {
	seconds := now.Sub(l.at).Seconds()
	was := l.last
	l.last, l.at = map[string]counters{}, now
	for _, d := range devices {
		is, err := read(d)
		if err != nil {
			return "", err
		}
		l.last[d] = is
		before, known := was[d]
		if !known || seconds <= 0 || is.bytes < before.bytes || is.lost < before.lost {
			continue
		}
		bits, lost := float64(is.bytes-before.bytes)*8/seconds, float64(is.lost-before.lost)/seconds
		switch {
		case line > 0 && bits >= lineFull*float64(line):
			harm = fmt.Sprintf("the line of %s is full, %.0f Mbit/s", d, bits/1e6)
		case lost >= leastLost:
			harm = fmt.Sprintf("%s loses %.0f packets/s before this host can drop them", d, lost)
		}
	}
	return harm, nil
}

// read reads the counters of a device in this network namespace. Lost packets are packets for which the receive ring had no space, and FIFO overruns
// (Documentation/networking/statistics.rst of the kernel).
func read(device string) (counters, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return counters{}, fmt.Errorf("device %s: %w", device, err)
	}
	s := link.Attrs().Statistics
	if s == nil {
		return counters{}, fmt.Errorf("device %s has no counters", device)
	}
	return counters{s.RxBytes, s.RxMissedErrors + s.RxFifoErrors}, nil
}
