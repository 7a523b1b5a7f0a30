// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
)

// Compiled is a policy that was compiled without errors. It is immutable.
type Compiled struct {
	Policy  *policy.Policy
	Program *ir.Program // optimized
	Notes   []string    // for the operator: legal settings that are probably a mistake

	live  []manifest.Live // the policy's live sets, after Apply has determined their contents
	found []ir.Handshake  // how connections to protected services are answered; only for a running policy

	host *facts.Facts        // the host that the policy was compiled for
	own  func() []netip.Addr // the addresses of the host
	plan func(plan.Target) (*plan.Plan, error)
}

// Compile compiles a policy and its list files without the facts of a host. It makes no calls to the kernel. It assumes that a protected service is
// on the host, unless the policy says otherwise. A fetched list has the content of its copy in the store. A list without a copy is empty, and Notes
// says so.
func Compile(p *policy.Policy, feeds feed.Store) (*Compiled, error) {
	c, err := compileSound(p, feeds)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// compileSound is Compile, but with an error it also returns the part of the policy that is correct.
func compileSound(p *policy.Policy, feeds feed.Store) (*Compiled, error) {
	copied, notes, unread := lists.WithCopies(p, feeds)
	if unread != nil {
		copied = p
	}
	c, err := lowerSound(copied, &facts.Facts{})
	c.Notes = append(c.Notes, notes...)
	return c, errors.Join(unread, err)
}

// Check compiles a policy and generates its output. It reports the errors of all stages together, in the order of the file. unread has the errors of
// parsing; p is then the part of the policy that could be parsed, or nil. The other errors are about lists and services, and about rules that have no
// stage.
func Check(p *policy.Policy, unread error, feeds feed.Store, t plan.Target) (*Compiled, *compile.Output, error) {
	if p == nil {
		return nil, nil, unread
	}
	c, err := compileSound(p, feeds)
	if unread == nil && err == nil {
		o, err := c.Output(t)
		return c, o, err
	}
	_, misplaced := c.Plan(t)
	return nil, nil, inOrder(unread, err, misplaced)
}

// inOrder joins errors. It sorts all single errors by their positions in the policy.
func inOrder(errs ...error) error {
	var single []error
	var part func(err error)
	part = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range joined.Unwrap() {
				part(one)
			}
		} else if err != nil {
			single = append(single, err)
		}
	}
	for _, err := range errs {
		part(err)
	}
	slices.SortStableFunc(single, func(a, b error) int {
		p, q := placeOf(a), placeOf(b)
		return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Col, q.Col))
	})
	return errors.Join(single...)
}

// placeOf returns the position of an error in its policy. It returns the zero Pos for an error without a position.
func placeOf(err error) policy.Pos {
	switch e := err.(type) {
	case *policy.Error:
		return policy.Pos{Line: e.Line, Col: e.Col}
	case *plan.StageError:
		return policy.Pos{Line: e.Line, Col: e.Col}
	}
	return policy.Pos{}
}

// CompileSource is Compile for the text of a policy. file is the name of the policy in messages. Relative paths of list files are relative to the
// directory of file.
func CompileSource(file string, text []byte) (*Compiled, error) {
	p, err := policy.Parse(file, text)
	if err != nil {
		return nil, err
	}
	return Lower(p, &facts.Facts{})
}

// Lower compiles a policy and the list files that it names for a host. It reads each file once.
func Lower(p *policy.Policy, host *facts.Facts) (*Compiled, error) {
	c, err := lowerSound(p, host)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// lowerSound is Lower, but with an error it also returns the part of the policy that is correct.
func lowerSound(p *policy.Policy, host *facts.Facts) (*Compiled, error) {
	var written []string
	for _, n := range p.Notes {
		written = append(written, fmt.Sprintf("%s:%d:%d: %s", p.File, n.Pos.Line, n.Pos.Col, n.Msg))
	}
	settled, where := withHostFacts(p, host)
	program, notes, err := compile.Lower(settled)
	optimized, more := compile.Optimize(program)
	c := Compiled{Policy: p, Notes: slices.Concat(written, notes, more, where), host: host, own: sync.OnceValue(ownAddresses)}
	return c.with(optimized), err
}

// with returns the same policy with another program.
func (c *Compiled) with(program *ir.Program) *Compiled {
	out := *c
	out.Program = program
	out.plan = planOnce(program)
	return &out
}

// planOnce returns a function that plans the stages of a program's rules. The function computes the plan for each target only once.
func planOnce(program *ir.Program) func(plan.Target) (*plan.Plan, error) {
	var one sync.Mutex
	plans := map[plan.Target]*plan.Plan{}
	return func(t plan.Target) (*plan.Plan, error) {
		one.Lock()
		defer one.Unlock()
		if pl, ok := plans[t]; ok {
			return pl, nil
		}
		forTarget, _ := plan.For(program, t)
		pl, err := plan.Hoist(forTarget, t)
		if err != nil {
			return nil, err
		}
		plans[t] = pl
		return pl, nil
	}
}

// lowerFor is Lower, but it also returns when ctx ends: large lists take a long time.
func lowerFor(ctx context.Context, p *policy.Policy, host *facts.Facts) (*Compiled, error) {
	return periodic.Within(ctx, func() (*Compiled, error) { return Lower(p, host) })
}

// ownAddresses returns the host's addresses. It returns nil when they cannot be listed.
func ownAddresses() []netip.Addr {
	own, _ := sockets.OwnAddresses()
	return own
}

// withHostFacts adds the facts of this host to a policy. It determines for each protected service whether it is on this host or behind it, and adds a
// note if the policy leaves that open. Packets of services on this host bypass conntrack, unless the policy says how they are tracked.
func withHostFacts(p *policy.Policy, host *facts.Facts) (*policy.Policy, []string) {
	var notes []string
	out := *p
	out.Services, out.DHCPServers = slices.Clone(p.Services), host.DHCPServers
	for i := range out.Services {
		s := &out.Services[i]
		if s.Syn == nil || s.Syn.Mode != policy.SynModeAuto {
			continue
		}
		mode, why := host.Mode(s)
		if host.Known {
			notes = append(notes, fmt.Sprintf("service %q is protected as %s", s.Name, why))
		}
		syn := *s.Syn
		s.Syn, syn.Mode = &syn, mode
		if mode == policy.SynHost && s.Track == policy.TrackAsIs {
			s.Track = policy.TrackNot
		}
	}
	if err := host.Kernel.Egress; err != nil {
		out.RepliesTracked = true
		notes = append(notes, fmt.Sprintf("conntrack tells which packets are replies, at filter: %v", err))
	}
	return &out, notes
}

// NotesFor returns the notes of the policy, followed by the notes for a target.
func (c *Compiled) NotesFor(t plan.Target) []string {
	return slices.Concat(c.Notes, compile.ListNotes(c.Program), compile.LimitNotes(c.Program, t), compile.FragmentNotes(c.Program, t), plan.PlacementNotes(c.Program, t))
}

// Plan returns the stage of each rule on a target. The plan's program is the policy's program, adapted to the target.
func (c *Compiled) Plan(t plan.Target) (*plan.Plan, error) { return c.plan(t) }

// Devices are the names of the policy's devices.
func (c *Compiled) Devices() []string { return c.Policy.DeviceNames() }

// Output compiles for a target as Apply would.
func (c *Compiled) Output(t plan.Target) (*compile.Output, error) {
	o, err := compile.Compile(c.Program, t, c.Devices())
	if err != nil {
		return nil, inFile(c.Policy.File, err)
	}
	return o, nil
}

// inFile adds the name of the policy's file to an error of the compiler that lacks it.
func inFile(file string, err error) error {
	if errors.As(err, new(*plan.StageError)) {
		return err
	}
	return fmt.Errorf("%s: %w", file, err)
}
