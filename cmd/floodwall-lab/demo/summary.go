// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Summary has the results of a demonstration.
type Summary struct {
	Machine       lab.Machine `json:"machine"`
	Policy        string      `json:"policy"`
	Rate          float64     `json:"flood_pps"`                // intended rate of the flood
	Capacity      *Capacity   `json:"capacity,omitempty"`       // nil if it was not measured to choose the rate
	Phases        []Phase     `json:"phases"`                   // without an attack, under the flood, and under the flood with Floodwall
	Fate          Fate        `json:"fate"`                     // fate of the packets while the policy was in force
	ApplySeconds  float64     `json:"apply_seconds"`            // duration of the command apply during the flood
	ReliefSeconds float64     `json:"relief_seconds,omitempty"` // time from the command until 90% of requests were answered, with an accuracy of 0.05 s
	Drops         []Drop      `json:"drops"`                    // drops by Floodwall, the most frequent reason first

	Downloads []Download `json:"downloads,omitempty"` // of the server, with a policy that moves the program with floods

	Page    string         `json:"page,omitempty"`    // address of the daemon's page, while the demonstration runs
	Attack  *attack.Report `json:"attack,omitempty"`  // the daemon's report of the attack; nil: the daemon detected none
	Report  string         `json:"report,omitempty"`  // file of the report, for a browser
	Packets string         `json:"packets,omitempty"` // file of packets of the attack, as pcapng

	Daemon string `json:"daemon_error,omitempty"` // error with which the daemon ended early
	Unkept string `json:"report_error,omitempty"` // the reason why the report was not written
}

// Trouble is the reason why a demonstration is impossible, or a fault of Floodwall in a demonstration.
type Trouble struct{ Problem, Remedy string }

func (t *Trouble) Error() string { return t.Problem }

// Hint returns the remedy.
func (t *Trouble) Hint() string { return t.Remedy }

// Shares of answered requests, and the share of the time in which the machine did other work.
const (
	wellServed   = 0.99 // from this share on, clients notice no attack
	poorlyServed = 0.50 // up to this share, a flood does harm
	undisturbed  = 0.20 // below this share the machine counts as quiet; the receive threads also wait for each other
)

// report is the remedy for defects of Floodwall.
const report = "this is a defect of Floodwall: please report it, with what `floodwall-lab demo --json` prints"

// Trouble returns a fault of Floodwall, or nil if there was none. Effects of the machine are no fault: see Remarks.
func (s *Summary) Trouble() *Trouble {
	f := &s.Fate
	problem := ""
	switch {
	case f.Flood.Passed > 0:
		problem = fmt.Sprintf("Floodwall passed %s of %s packets of the flood, of which the policy forbids all",
			wording.Count(f.Flood.Passed), wording.Count(f.Flood.Arrived))
	case f.Clients.Dropped > 0:
		problem = fmt.Sprintf("Floodwall dropped %s of %s packets of the clients, of which the policy allows all",
			wording.Count(f.Clients.Dropped), wording.Count(f.Clients.Arrived))
	case f.Dropped != f.Counted:
		problem = fmt.Sprintf("Floodwall counted %s dropped packets, and the driver dropped %s", wording.Count(f.Counted), wording.Count(f.Dropped))
	case s.comparable() && s.answered(protected) <= s.answered(exposed):
		problem = fmt.Sprintf("the server answered %s of the requests with Floodwall, and %s without, at a flood of %s",
			percent(s.answered(protected)), percent(s.answered(exposed)), mpps(s.Rate))
	case s.Daemon != "":
		problem = "the daemon ended early: " + s.Daemon
	case s.unmoved() != nil && s.comparable():
		problem = s.unmovedText()
	case s.Unkept != "":
		return &Trouble{"the report was not written: " + s.Unkept, "make space, or name another directory with --report"}
	default:
		return nil
	}
	return &Trouble{problem, report}
}

func (s *Summary) answered(phase int) float64 { return s.Phases[phase].answered() }

// comparable reports whether the machine was quiet enough to compare the clients' results with and without Floodwall.
func (s *Summary) comparable() bool {
	return s.answered(quiet) >= wellServed && s.answered(exposed) <= poorlyServed && s.Fate.Flood.Arrived > 0 &&
		s.Phases[protected].Traffic.Disturbed < undisturbed
}

// Verdict returns the result in sentences.
func (s *Summary) Verdict() string {
	f, with := &s.Fate, &s.Phases[protected]
	text := fmt.Sprintf("Under a flood of %s the server answered %s of its clients' requests; with Floodwall, %s. ",
		mpps(with.Traffic.Sent), percent(s.answered(exposed)), percent(s.answered(protected)))
	if f.Flood.Arrived > 0 {
		text += fmt.Sprintf("The driver dropped all %s packets of the flood that arrived, and none of the clients'. ", wording.Count(f.Flood.Arrived))
	}
	text += fmt.Sprintf("The policy was in force %.0f ms after the command", s.ApplySeconds*1e3)
	if s.ReliefSeconds > 0 {
		text += fmt.Sprintf(", and clients were served again %.0f ms after it", s.ReliefSeconds*1e3)
	}
	return text + "."
}

// Remarks describes effects of this machine, not of Floodwall, on the results. It returns "" if the machine was fast enough.
func (s *Summary) Remarks() string {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	with := &s.Phases[protected]
	if lost := with.Traffic.Lost; lost > 0 && with.Traffic.Sent > 0 {
		say("Of the flood, %s were lost in a full queue before Floodwall: that is this machine, not Floodwall.", percent(lost/with.Traffic.Sent))
	}
	if s.Fate.Flood.Arrived == 0 {
		say("No packet of the flood arrived while the policy was in force: this machine was too busy to send it.")
	}
	if quiet := s.answered(quiet); quiet < wellServed {
		say("Without any attack only %s of the requests were answered: this machine is busy with other things, which cost requests in all phases.", percent(quiet))
	}
	if without := s.answered(exposed); without > poorlyServed {
		say("The flood did this server little harm without a firewall: try a stronger one, --rate %.0f, or again when this machine is quieter.", 2*s.Rate)
	}
	if s.unmoved() != nil {
		say("%s: this machine was too busy.", s.unmovedText())
	}
	if s.Page != "" && s.Attack == nil {
		say("The daemon got too little of the CPU to see the attack while it went on, so there is no report: try again when this machine is quieter.")
	}
	if share := s.answered(protected); share < wellServed {
		say("With Floodwall %s of the requests failed, though it dropped no packet of theirs: other work had the CPU for %s of the time. "+
			"Try again when this machine is quieter, or a weaker flood, --rate %.0f.", percent(1-share), percent(min(1, with.Traffic.Disturbed)), s.Rate/2)
	}
	return strings.Join(said, " ")
}
