package demo

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
)

// Summary is what a demonstration showed.
type Summary struct {
	Machine       lab.Machine `json:"machine"`
	Policy        string      `json:"policy"`
	Rate          float64     `json:"flood_pps"`                // of the flood, as it was meant to be
	Capacity      *Capacity   `json:"capacity,omitempty"`       // when it was measured to choose the rate
	Phases        []Phase     `json:"phases"`                   // without attack, under flood, with Floodwall
	ApplySeconds  float64     `json:"apply_seconds"`            // that the command took, under the flood
	ReliefSeconds float64     `json:"relief_seconds,omitempty"` // from the command until 90% of requests were answered, to 0.05 s
	Drops         []Drop      `json:"drops"`                    // by Floodwall, the most first
}

// Trouble is why a demonstration cannot be given, or did not come out as it should.
type Trouble struct{ Problem, Remedy string }

func (t *Trouble) Error() string { return t.Problem }

// Hint is the remedy.
func (t *Trouble) Hint() string { return t.Remedy }

// What a demonstration must show: shares of requests that are answered.
const (
	wellServed   = 0.99
	poorlyServed = 0.50
)

// Trouble is nil when the server failed under the flood and was saved, and otherwise says what went wrong.
func (s *Summary) Trouble() *Trouble {
	before, without, with := s.Phases[quiet].answered(), s.Phases[exposed].answered(), s.Phases[protected].answered()
	switch {
	case before < wellServed:
		return &Trouble{fmt.Sprintf("without any attack only %s of the requests were answered", percent(before)),
			"this machine is busy with other things: try again when it is quieter"}
	case without > poorlyServed:
		return &Trouble{
			fmt.Sprintf("this machine shrugs the flood off at %s: %s of the requests were answered without Floodwall", mpps(s.Rate), percent(without)),
			fmt.Sprintf("try a stronger one: --rate %.0f", 2*s.Rate)}
	case with < wellServed:
		return &Trouble{
			fmt.Sprintf("with Floodwall only %s of the requests were answered, at a flood of %s", percent(with), mpps(s.Rate)),
			fmt.Sprintf("try a weaker one, --rate %.0f, or again when this machine is quieter", s.Rate/2)}
	}
	return nil
}

// Verdict is a sentence about what was shown.
func (s *Summary) Verdict() string {
	without, with := &s.Phases[exposed], &s.Phases[protected]
	return fmt.Sprintf("Under a flood of %s the server answered %s of its clients' requests; with Floodwall, %s. "+
		"The policy was in force %.0f ms after the command, and clients were served again %.0f ms after it.",
		mpps(with.Traffic.Sent), percent(without.answered()), percent(with.answered()),
		s.ApplySeconds*1e3, s.ReliefSeconds*1e3)
}
