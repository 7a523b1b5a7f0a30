// SPDX-License-Identifier: Apache-2.0

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

// Suggestion contains rules against an attack, and describes the traffic in which they were found.
type Suggestion struct {
	Policy   string `json:"policy"`
	Attack   Source `json:"attack"`
	Baseline Source `json:"baseline"`
	suggest.Result
}

// Source describes the origin of samples.
type Source struct {
	Files   []string `json:"files"`             // captures
	Devices []string `json:"devices,omitempty"` // devices; none if the samples are from captures
	Packets int      `json:"packets"`           // IP packets
	Looked  int      `json:"looked"`            // number of packets that were examined, which were drawn at random
	Lost    int      `json:"lost,omitempty"`    // samples that were lost because they came too fast
	Seconds float64  `json:"seconds"`

	samples []suggest.Sample
	dropped map[string]int // number of samples that the running policy drops, by reason; all other samples are in `samples`
}

// Search is the input of Suggest.
type Search struct {
	Attack     string         // a capture of the current traffic; "": sample the devices
	Live       *sample.Stream // samples that the daemon takes during the time For; nil: this process takes samples
	For        time.Duration  // the time span of traffic to examine; 0: a whole capture, or 5 seconds
	Baseline   []string       // captures of legitimate traffic
	Collateral float64        // the largest share of the baseline's packets that all rules together may match
}

// Suggest finds rules against an attack from which a policy does not protect.
func (s Search) Suggest(ctx context.Context, c *control.Compiled) (*Suggestion, error) {
	return s.suggest(ctx, nil, c.Policy.File, c.Devices(), suggest.Input{Program: c.Program, World: c.World(), Taken: names(c.Program)})
}

// Suggest finds rules against the traffic that arrives now on the devices of the running policy and that XDP passes. It knows only the names of that
// policy's rules. So packets that the policy drops in netfilter count as passed, and the suggestion does not tell before which existing rules the new
// rules must stand.
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

// open starts to take samples.
func (s Search) open(t *sample.Tap, devices []string) (samples, error) {
	if s.Live != nil {
		return s.Live, nil
	}
	return openSamples(t, devices)
}

// names returns the names of a program's rules.
func names(p *ir.Program) map[string]bool {
	taken := map[string]bool{}
	for _, r := range p.Rules {
		taken[r.Name] = true
	}
	return taken
}

// read reads the packets of captures. most is the largest number of packets from all files together.
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

// noRule returns the error for a search that found no rule.
func noRule(problem, remedy string) error { return wording.Hinted("suggest: "+problem, remedy) }

// None returns an error when no rule was found.
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
