package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Suggestion is rules against an attack, and what they were found in.
type Suggestion struct {
	Policy   string `json:"policy"`
	Attack   Source `json:"attack"`
	Baseline Source `json:"baseline"`
	suggest.Result
}

// Source is where samples are from.
type Source struct {
	Files   []string `json:"files"`             // captures
	Devices []string `json:"devices,omitempty"` // or devices
	Packets int      `json:"packets"`           // of IP
	Looked  int      `json:"looked"`            // at so many, drawn at random
	Lost    int      `json:"lost,omitempty"`    // that were drawn, and came faster than they were read
	Seconds float64  `json:"seconds"`

	samples []suggest.Sample
	dropped map[string]int // samples that the policy that runs drops, by the reason; they are not among the others
}

// Search is what Suggest looks for, and in what.
type Search struct {
	Attack     string         // a capture of the traffic of now; "": samples are taken of what comes to the devices
	Live       *sample.Stream // samples that the daemon takes, for the time For; nil: they are taken here
	For        time.Duration  // look at so much of it; 0: at all of a capture, or for 5 seconds
	Baseline   []string       // captures of legitimate traffic
	Collateral float64        // the most of the baseline's packets that all rules together may match, as a share
}

// Suggest finds rules that a policy lacks against an attack.
func (s Search) Suggest(ctx context.Context, c *control.Compiled) (*Suggestion, error) {
	return s.suggest(ctx, nil, c.Policy.File, c.Devices(), suggest.Input{Program: c.Program, World: c.World(), Taken: names(c.Program)})
}

// Suggest finds rules against what comes now to the devices of the policy that runs, and what XDP passes of it. Of that policy it knows
// the names only: what it drops in netfilter is taken for passed, and the rules do not say before which others they must stand.
func (h Host) Suggest(ctx context.Context, s Search) (*Suggestion, error) {
	status, err := h.Instance.Status(ctx)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, r := range everything(status) {
		taken[r.Name] = true
	}
	return s.suggest(ctx, h.Tap, status.Policy, deviceNames(status), suggest.Input{Program: &ir.Program{}, Taken: taken})
}

func (s Search) suggest(ctx context.Context, t *sample.Tap, file string, devices []string, in suggest.Input) (*Suggestion, error) {
	out := &Suggestion{Policy: file, Attack: Source{Files: []string{}, dropped: map[string]int{}}, Baseline: Source{Files: []string{}}}
	var err error
	if s.Attack != "" {
		err = out.Attack.read(ctx, []string{s.Attack}, suggest.MostAttack, s.For)
	} else if r, openErr := s.open(t, devices); openErr != nil {
		err = openErr
	} else {
		err = out.Attack.sample(ctx, r, devices, suggest.MostAttack, s.For)
	}
	if err != nil {
		return nil, err
	}
	if err := out.Baseline.read(ctx, s.Baseline, suggest.MostGood, 0); err != nil {
		return nil, err
	}
	in.Attack, in.Good, in.Collateral = out.Attack.samples, out.Baseline.samples, s.Collateral
	result, err := suggest.Find(in)
	if err != nil {
		return nil, err
	}
	out.Result = *result
	for _, d := range out.Dropped {
		out.Attack.dropped[d.Name] += d.Packets
	}
	out.Dropped = out.Dropped[:0]
	for name, n := range out.Attack.dropped {
		out.Dropped = append(out.Dropped, suggest.Reason{Name: name, Packets: n})
	}
	slices.SortFunc(out.Dropped, func(a, b suggest.Reason) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// open begins to take samples.
func (s Search) open(t *sample.Tap, devices []string) (samples, error) {
	if s.Live != nil {
		return s.Live, nil
	}
	return openSamples(t, devices)
}

// names are those of a program's rules.
func names(p *ir.Program) map[string]bool {
	taken := map[string]bool{}
	for _, r := range p.Rules {
		taken[r.Name] = true
	}
	return taken
}

// read reads the packets of captures, at most so many together.
func (s *Source) read(ctx context.Context, files []string, most int, span time.Duration) error {
	s.Files = append(s.Files, files...)
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		samples, took, packets, err := suggest.ReadFile(file, most/len(files), span)
		if err != nil {
			return err
		}
		if packets == 0 {
			return fmt.Errorf("%s: there is no IP packet in it", file)
		}
		s.Packets += packets
		s.Seconds += took.Seconds()
		s.samples = append(s.samples, samples...)
	}
	s.Looked = len(s.samples)
	return nil
}

// noRule says why no rule was found.
func noRule(problem, remedy string) error { return wording.Hinted("suggest: "+problem, remedy) }

// None is an error when no rule was found, and nil when there is one.
func (s *Suggestion) None() error {
	dropped := s.Attack.Looked - s.Passed
	switch {
	case len(s.Rules) > 0:
		return nil
	case s.Passed == 0:
		return noRule("the policy drops all packets of the attack already", "`floodwall apply` it, if it is not in force")
	case dropped > s.Passed:
		part := 100 * float64(dropped) / float64(s.Attack.Looked)
		return noRule(fmt.Sprintf("the policy drops %.1f%% of the attack already, and no rule matches enough of the others", part),
			"`floodwall apply` it, if it is not in force")
	case s.Collateral == nil:
		return noRule("no narrow rule matches enough of the attack", "give legitimate traffic with --baseline, or look at more of the attack")
	}
	return noRule("no rule matches enough of the attack without the baseline's packets",
		"look at more of the attack, or accept more with --collateral")
}
