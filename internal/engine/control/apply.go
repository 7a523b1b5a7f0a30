package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
)

// Instance is a Floodwall in one network namespace, known by its state directory in the BPF file system.
type Instance struct {
	Dir   string
	State string                          // the directory for what is kept over a reboot; "": none, and any will do
	Bans  *ban.Log                        // where entries of dynamic sets are kept over a reboot; nil: they are not
	Feeds feed.Store                      // where the last good copies of lists are that are fetched; zero: nowhere, and such sets are empty
	Asked *periodic.Answer[RunningPolicy] // the last answer of RunningPolicy, for a daemon of many parts; nil: none is kept
	Marks *periodic.Marks                 // tell a daemon whether anything has changed; nil: it is not known
}

// lockWait is the time for which a command waits for another that changes the state. On a slow machine, or with large lists, an apply takes
// more than ten seconds. It is less than the 90 s that systemd gives a unit to start.
const lockWait = time.Minute

// ApplyOptions are the choices of one apply.
type ApplyOptions struct {
	Target   plan.Target     // "" or TargetAuto is the first of XDP, nftables and iptables that this host can do
	Devices  []string        // in place of the policy's
	Mode     datapath.Mode   // of XDP; "" is auto
	DryRun   bool            // everything up to loading the program, and the checks of it; nothing is attached
	Sessions []facts.Session // sessions that the policy must not cut; nil skips the guard
	Boot     string          // names the copy of the policy that comes back after a reboot; "" is none
	Costs    *cost.Model     // of this host, by which rules are placed; nil: as early as they can be
	Confirm  time.Duration   // after which the policy before returns unless Confirm is called; 0 is no trial
	Fetch    *feed.Fetcher   // fetches lists of which there is no copy; nil: nothing is fetched, and their sets are empty
	Read     func() error    // called when all files that the policy names have been read; its error ends the apply; nil: nothing
}

// TargetAuto stands for the best target that a host can do.
const TargetAuto plan.Target = "auto"

// Applied is what an apply did, or with DryRun would do.
type Applied struct {
	Target     plan.Target        `json:"target"`
	Choice     string             `json:"choice,omitempty"` // why it is this target, when it was to be chosen
	Devices    []AppliedDevice    `json:"devices"`
	Generation int                `json:"generation"`
	Rules      int                `json:"rules"`
	Stages     map[plan.Stage]int `json:"stages"` // how many rules run at each
	Form       xdpgen.Form        `json:"form,omitempty"`
	Entries    int                `json:"entries"`                  // of all static sets
	Bans       int                `json:"bans"`                     // entries of dynamic sets that were kept
	Confirm    float64            `json:"confirm_within,omitempty"` // seconds until the policy before returns
	Returns    int                `json:"returns_to,omitempty"`     // its generation; 0 is none
	Notes      []string           `json:"notes,omitempty"`
	Seconds    float64            `json:"seconds"` // from the policy's text to its enforcement
}

// AppliedDevice is a device that a policy was applied to.
type AppliedDevice struct {
	Name  string        `json:"name"`
	Stage plan.Stage    `json:"stage"` // the first at which rules run
	Mode  datapath.Mode `json:"mode,omitempty"`
}

// Apply makes a policy the one that runs. Either it does on all devices, or nothing has changed and the error
// says why; at no moment is a device that was filtered unfiltered.
//
// The steps: what this host is (facts), the policy lowered for it, the lock, what commands that died have left, and then
// the steps of the transaction (steps.go) for the target that is asked for, or for one after the other until one is possible.
func (in Instance) Apply(ctx context.Context, p *policy.Policy, o ApplyOptions) (*Applied, error) {
	start := time.Now()
	host, err := facts.Discover(ctx, p, o.Devices)
	if err != nil {
		return nil, err
	}
	if o.Fetch != nil && !o.DryRun {
		if err := lists.FetchMissing(ctx, in.Feeds, p, o.Fetch); err != nil {
			return nil, err
		}
	}
	p, copies, err := lists.WithCopies(p, in.Feeds)
	if err != nil {
		return nil, err
	}
	c, err := lowerFor(ctx, p, host)
	if err == nil && o.Read != nil {
		err = o.Read()
	}
	if err != nil {
		return nil, err
	}
	c = in.liveSets(c, o.Sessions)
	state, err := datapath.OpenState(in.Dir, true)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, state)
	if err != nil {
		return nil, err
	}
	defer unlock()
	notes := slices.Concat(copies, lists.Notes(c.live), TranslationNotes(c.Policy, host.Translations))
	if !o.DryRun {
		if _, err := in.sweep(ctx, state, true); err != nil {
			notes = append(notes, fmt.Sprintf("what runs could not be put straight first: %v", err))
		}
		if _, err := in.releaseProxy(ctx); err != nil {
			notes = append(notes, fmt.Sprintf("what is left of SYNPROXY stays: %v", err))
		}
	}
	applied, err := in.choose(ctx, state, c, o)
	if err != nil || o.DryRun {
		err = errors.Join(err, state.RemoveIfEmpty())
	}
	if err != nil {
		return nil, err
	}
	if !o.DryRun {
		notes = append(notes, in.bansKept(ctx, state)...)
		if text := in.listsWaitFor(c.live); text != "" {
			notes = append(notes, text)
		}
	}
	applied.Notes = append(applied.Notes, notes...)
	applied.Seconds = time.Since(start).Seconds()
	return applied, nil
}

// lock waits for other commands for a while.
func lock(ctx context.Context, state *datapath.State) (unlock func(), err error) {
	limited, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = state.Lock(limited)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return unlock, err
}
