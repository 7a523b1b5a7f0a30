// SPDX-License-Identifier: Apache-2.0

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
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
)

// Instance is one Floodwall in a network namespace. It is identified by its state directory in the BPF file system.
type Instance struct {
	Dir   string
	State string                          // the directory for files that survive a reboot; "": no files are stored, and any recorded directory is accepted
	Bans  *ban.Log                        // the file that keeps entries of dynamic sets across a reboot; nil: a reboot loses these entries
	Feeds feed.Store                      // the store of the last good copies of fetched lists; zero: none, and the sets of these lists are empty
	Asked *periodic.Answer[RunningPolicy] // caches the last answer of RunningPolicy for all parts of a daemon; nil: no cache
	Marks *periodic.Marks                 // tell a daemon whether the running policy has changed; nil: unknown

	only string // the ID of the only policy that may be changed; "": any
}

// ErrOther says that another policy runs than the one that was to be changed.
var ErrOther = errors.New("another command has applied another policy")

// Only returns the instance for changes of the policy with an ID, which is Applied.Boot. If another policy runs, the changes return ErrOther.
func (in Instance) Only(id string) Instance {
	in.only = id
	return in
}

// lockWait is the time that a command waits for another command that changes the state. An apply takes more than ten seconds on a slow machine or
// with large lists. lockWait is less than the 90 s that systemd gives a unit to start.
const lockWait = time.Minute

// ApplyOptions are the choices of one apply.
type ApplyOptions struct {
	Target   plan.Target     // "" or TargetAuto selects the first of XDP, nftables and iptables that this host supports
	Devices  []string        // replace those of the policy
	Mode     datapath.Mode   // of target xdp; "" is Kept
	Kept     datapath.Mode   // the mode that an earlier apply asked for, which holds if the target is xdp; "" is auto
	DryRun   bool            // stop after the program was loaded and checked; nothing is attached
	Sessions []facts.Session // sessions that the policy must not cut; nil skips the guard
	Boot     string          // names the copy of the policy that is loaded after a reboot; "": none
	Costs    *cost.Model     // the costs of this host, from which rules get their places; nil: rules run as early as possible
	Confirm  time.Duration   // time after which the previous policy returns if Confirm is not called; 0: no trial
	Fetch    *feed.Fetcher   // fetches lists that have no copy; nil: nothing is fetched, and the sets of these lists are empty
	Daemon   bool            // the caller starts the daemon after the apply
	Read     func() error    // called after all files that the policy names were read; its error ends the apply; nil: not called

	Origin *manifest.Origin // the text of the policy; nil: unknown
}

// TargetAuto stands for the best target that a host supports.
const TargetAuto plan.Target = "auto"

// Applied is the result of an apply. For a dry run it is the expected result.
type Applied struct {
	Target     plan.Target        `json:"target"`
	Choice     string             `json:"choice,omitempty"` // why this target was chosen, if the operator named none
	Devices    []AppliedDevice    `json:"devices"`
	Generation int                `json:"generation"`
	Rules      int                `json:"rules"`
	Stages     map[plan.Stage]int `json:"stages"` // how many rules run at each stage
	Form       xdpgen.Form        `json:"form,omitempty"`
	Entries    int                `json:"entries"`                  // of all static sets
	Bans       int                `json:"bans"`                     // entries of dynamic sets that were carried over
	Confirm    float64            `json:"confirm_within,omitempty"` // seconds until the previous policy returns
	Returns    int                `json:"returns_to,omitempty"`     // the generation that returns if the trial is not confirmed; 0: none
	Boot       string             `json:"-"`                        // as in ApplyOptions: identifies this policy
	Notes      []string           `json:"notes,omitempty"`
	Seconds    float64            `json:"seconds"` // from reading the policy's text to enforcing it
}

// AppliedDevice is a device that a policy was applied to.
type AppliedDevice struct {
	Name  string        `json:"name"`
	Stage plan.Stage    `json:"stage"` // the first stage at which rules run
	Mode  datapath.Mode `json:"mode,omitempty"`
}

// Apply puts a policy in force on all devices. If that is not possible, Apply changes nothing and returns an error that says why. A device that was
// filtered is filtered all the time.
//
// Apply first finds the facts about this host and compiles the policy for it. It then takes the lock, and cleans up after commands that died. Then it
// runs the steps of the transaction (steps.go) for the requested target. If no target is requested, it tries one target after the other until one is
// possible.
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

// lock takes the lock. It waits up to lockWait for other commands.
func lock(ctx context.Context, state *datapath.State) (unlock func(), err error) {
	limited, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = state.Lock(limited)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return unlock, err
}
