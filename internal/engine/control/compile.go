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
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
)

// Compiled is a policy that was lowered without a mistake. It does not change.
type Compiled struct {
	Policy  *policy.Policy
	Program *ir.Program // optimized
	Notes   []string    // for the operator: what is legal and probably not meant

	live  []manifest.Live // its sets whose content is exchanged, once Apply has settled them
	found []ir.Handshake  // of one that runs: how protected services are answered for

	host *facts.Facts        // that it was lowered for
	own  func() []netip.Addr // the addresses of the host
	plan func(plan.Target) (*plan.Plan, error)
}

// Compile reads the list files of a policy, for no particular host. It uses no kernel. A protected service is taken for a service of
// the host unless the policy says where it is. Lists that are fetched have the content of their copies in the store, and are empty without
// one, with a note.
func Compile(p *policy.Policy, feeds feed.Store) (*Compiled, error) {
	c, err := compileSound(p, feeds)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// compileSound is Compile, and gives what is sound beside an error.
func compileSound(p *policy.Policy, feeds feed.Store) (*Compiled, error) {
	copied, notes, unread := lists.WithCopies(p, feeds)
	if unread != nil {
		copied = p
	}
	c, err := lowerSound(copied, &facts.Facts{})
	c.Notes = append(c.Notes, notes...)
	return c, errors.Join(unread, err)
}

// Check is Compile and Output, and reports the mistakes of all stages together, in the order of the file: those of reading the policy, which
// unread has and of which p is the sound rest, if there is any; those of lists and services; and rules that have no stage.
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

// inOrder joins errors, the single mistakes in a policy by their places.
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

// placeOf is where in its policy a mistake is, the zero Pos for what is nowhere.
func placeOf(err error) policy.Pos {
	switch e := err.(type) {
	case *policy.Error:
		return policy.Pos{Line: e.Line, Col: e.Col}
	case *plan.StageError:
		return policy.Pos{Line: e.Line, Col: e.Col}
	}
	return policy.Pos{}
}

// CompileSource is Compile for the text of a policy; file is its name in messages, and where relative list files are.
func CompileSource(file string, text []byte) (*Compiled, error) {
	p, err := policy.Parse(file, text)
	if err != nil {
		return nil, err
	}
	return Lower(p, &facts.Facts{})
}

// Lower compiles a policy for a host, with the list files that it names, each of which is read once.
func Lower(p *policy.Policy, host *facts.Facts) (*Compiled, error) {
	c, err := lowerSound(p, host)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// lowerSound is Lower, and gives what is sound beside an error.
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

// planOnce finds the stages of a program's rules, once for each target that is asked for.
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

// lowerFor is Lower for as long as ctx lasts: large lists take a while.
func lowerFor(ctx context.Context, p *policy.Policy, host *facts.Facts) (*Compiled, error) {
	return periodic.Within(ctx, func() (*Compiled, error) { return Lower(p, host) })
}

// ownAddresses are the host's addresses, none when they cannot be listed.
func ownAddresses() []netip.Addr {
	own, _ := facts.OwnAddresses()
	return own
}

// withHostFacts adds the facts of this host to a policy. It decides for each protected service where it is, with notes for services whose place is
// open. Packets of services on this host are kept out of conntrack, unless the policy says how they are tracked.
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

// NotesFor returns Notes, and the notes for a target.
func (c *Compiled) NotesFor(t plan.Target) []string {
	return slices.Concat(c.Notes, compile.ListNotes(c.Program), compile.LimitNotes(c.Program, t), compile.FragmentNotes(c.Program, t), plan.PlacementNotes(c.Program, t))
}

// Plan finds the stage of each rule on a target. Its program is that of the policy as the target has it.
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

// inFile names the policy's file in an error of the compiler that does not name it itself.
func inFile(file string, err error) error {
	if errors.As(err, new(*plan.StageError)) {
		return err
	}
	return fmt.Errorf("%s: %w", file, err)
}
