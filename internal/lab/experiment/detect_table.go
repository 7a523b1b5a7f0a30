package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/traffic"
)

// mostHonest is the most of honest packets that rules of the daemon may drop.
const mostHonest = 0.001

// notes are the choices made.
func (b *detectBuilder) notes() []string {
	return []string{
		"The usual mix, some 1,500 packets a second to six services, comes all the time. The daemon has learned it before, for",
		fmt.Sprintf("%v; each case begins with what it knew then. It chooses itself how many packets are samples. Attacks send %s", learnTime, report.CountText(traffic.AttackRate)),
		"packets a second unless they say otherwise. Times are from the first packet of a case until the daemon says that there is an",
		"attack, until it names a kind, until it suggests a rule, and until XDP drops a packet. Without checks, and with `default: pass`,",
		"nothing but the rules that the daemon adds by itself drops: packets of the attack, and honest ones, are those that XDP has dropped",
		"on the wire of each (the driver's own counters). *After 5 s* is the share of what came later than that: of pulses, all but the first. What a full queue of a wire loses before XDP is none of them. The class is by nft",
		"counters past XDP, against what was sent, by addresses and ports; the worst class is named. Honest clients are answered by real",
		fmt.Sprintf("sockets. The daemon's CPU is a share of one, its memory the most that it had. Medians of %s; two cases run at a time.", rounds(b.Rounds)),
	}
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// figure is one of each visit.
func (c *detectCase) figure(of func(*detectVisit) float64) (all report.Samples) {
	for _, v := range c.visits {
		all = append(all, of(v))
	}
	return all
}

// never is a time that did not come, longer than any that did.
const never = 24 * time.Hour

// sooner is a time that orders those that never came last.
func sooner(of func(*detectVisit) time.Duration) func(*detectVisit) float64 {
	return func(v *detectVisit) float64 { return cmp.Or(of(v), never).Seconds() }
}

var (
	detectSeen      = sooner(func(v *detectVisit) time.Duration { return v.seen })
	detectNamed     = sooner(func(v *detectVisit) time.Duration { return v.named })
	detectSuggested = sooner(func(v *detectVisit) time.Duration { return v.suggested })
	detectDropped   = sooner(func(v *detectVisit) time.Duration { return v.dropped })
)

func detectStopped(v *detectVisit) float64 { return v.attack.share() }
func detectHarm(v *detectVisit) float64    { return v.honest.share() }
func detectLater(v *detectVisit) float64 {
	return float64(v.later.Dropped) / float64(max(1, v.later.Received))
}
func detectCalls(v *detectVisit) float64  { return float64(v.calls) }
func detectCPU(v *detectVisit) float64    { return v.cpu }
func detectMemory(v *detectVisit) float64 { return float64(v.memory) }

// worst is the share of the class that lost most of its packets by rules, and its name; "" when none lost any. Losses of a queue are not told
// apart by class, and taken off in proportion.
func (v *detectVisit) worst() (share float64, name string) {
	missing := uint64(0)
	for _, l := range v.classes {
		missing += l.missing
	}
	for _, l := range v.classes {
		lost := float64(l.missing) / float64(l.sent) * float64(v.honest.dropped) / float64(max(1, missing))
		if min(1, lost) > share {
			share, name = min(1, lost), l.name
		}
	}
	return share, name
}

func detectWorst(v *detectVisit) float64 { share, _ := v.worst(); return share }

// publish adds the tables, the results and the bars to the outcome.
func (b *detectBuilder) publish() {
	t := &report.Table{
		Title: "detect: attacks that the daemon sees, and honest traffic that it does not take for one",
		Head: []string{
			"", "calls", "seen s", "named s", "rule s", "drops s", "attack dropped", "after 5 s", "honest dropped", "worst class", "bar", "kpps", "CPU", "MB", "",
		},
		Notes: b.notes(),
	}
	said := &report.Table{Title: "detect: what the daemon named, suggested and did, in the last round", Head: []string{""}}
	for _, c := range b.cases {
		bars := c.bars(b.Outcome.Name)
		b.Outcome.Bars = append(b.Outcome.Bars, bars...)
		b.Outcome.Results = append(b.Outcome.Results, c.result(b.Outcome.Name))
		t.AddRow(c.cells(bars)...)
		if c.late() {
			t.AddNote("~ disturbed: a packet left more than %v late, since the machine did something else.", mostLate)
		}
		if len(c.visits) > 0 {
			v := c.visits[len(c.visits)-1]
			said.AddRow(c.name() + ": " + cmp.Or(strings.Join(v.kinds, ", "), "nothing"))
			for _, rule := range v.rules {
				said.AddRow("    " + rule)
			}
		}
	}
	b.Outcome.Tables = append(b.Outcome.Tables, t, said)
}

// bars are of honest packets alone: what else an attack should come to is for the reader.
func (c *detectCase) bars(experiment string) []*report.Bar {
	if len(c.visits) == 0 {
		return nil
	}
	return []*report.Bar{report.AtMost(experiment+"/"+c.name()+" honest-dropped", c.figure(detectHarm).Median(), mostHonest)}
}

// mostLate is how late a packet may leave.
const mostLate = 500 * time.Millisecond

// late reports whether the lab did not have the CPU that it needs.
func (c *detectCase) late() bool {
	return slices.ContainsFunc(c.visits, func(v *detectVisit) bool { return v.late > mostLate })
}

// secondsText is a time, or that it never came.
func secondsText(s report.Samples) string {
	if m := s.Median(); m < never.Seconds() {
		return fmt.Sprintf("%.1f", m)
	}
	return "never"
}

// cells are a row as text.
func (c *detectCase) cells(bars []*report.Bar) []string {
	cells := make([]string, 15)
	cells[0], cells[14] = c.name()+": "+c.Label, c.missing
	if len(c.visits) == 0 {
		return cells
	}
	cells[14] = report.Choice(c.late(), "~", "")
	percent := func(v float64) string { return fmt.Sprintf("%.2f%%", 100*v) }
	cells[1] = fmt.Sprintf("%.0f", c.figure(detectCalls).Median())
	for i, of := range []func(*detectVisit) float64{detectSeen, detectNamed, detectSuggested, detectDropped} {
		cells[2+i] = secondsText(c.figure(of))
	}
	if !c.Honest {
		cells[6] = percent(c.figure(detectStopped).Median())
		cells[7] = percent(c.figure(detectLater).Median())
	}
	cells[8] = percent(c.figure(detectHarm).Median())
	if share, name := c.visits[len(c.visits)-1].worst(); name != "" {
		cells[9] = name + " " + percent(share)
	}
	for i, bar := range bars {
		cells[10+i] = bar.String()
	}
	cells[11] = fmt.Sprintf("%.1f", c.figure(func(v *detectVisit) float64 { return float64(v.attack.sent+v.honest.sent) / v.lasted.Seconds() / 1e3 }).Median())
	cells[12] = percent(c.figure(detectCPU).Median())
	cells[13] = fmt.Sprintf("%.0f", c.figure(detectMemory).Median()/1e6)
	return cells
}

// result is a row for programs. Times that never came are left out, and so is the round: there are as many samples as rounds in which it came.
func (c *detectCase) result(experiment string) lab.Result {
	r := lab.Result{Name: experiment + "/" + c.name(), Runs: len(c.visits), Note: c.missing}
	if len(c.visits) == 0 {
		return r
	}
	add := func(unit string, of func(*detectVisit) float64) {
		r.Metrics = append(r.Metrics, c.figure(of).Metric(unit))
	}
	add("calls", detectCalls)
	for unit, of := range map[string]func(*detectVisit) float64{
		"seen-s": detectSeen, "named-s": detectNamed, "suggested-s": detectSuggested, "dropped-s": detectDropped,
	} {
		came := slices.DeleteFunc(c.figure(of), func(s float64) bool { return s >= never.Seconds() })
		if len(came) > 0 {
			r.Metrics = append(r.Metrics, came.Metric(unit))
		}
	}
	slices.SortStableFunc(r.Metrics[1:], func(x, y lab.Metric) int { return cmp.Compare(x.Value, y.Value) })
	if !c.Honest {
		add("attack-dropped", detectStopped)
		add("attack-dropped-later", detectLater)
		add("attack-packets", func(v *detectVisit) float64 { return float64(v.attack.sent) })
		add("attack-lost-packets", func(v *detectVisit) float64 { return float64(v.attack.lost) })
	}
	add("honest-dropped", detectHarm)
	add("worst-class-dropped", detectWorst)
	add("honest-packets", func(v *detectVisit) float64 { return float64(v.honest.sent) })
	add("honest-lost-packets", func(v *detectVisit) float64 { return float64(v.honest.lost) })
	add("xdp-dropped-packets", func(v *detectVisit) float64 { return float64(v.attack.dropped + v.honest.dropped) })
	add("rules-dropped-packets", func(v *detectVisit) float64 { return float64(v.byRules) })
	add("answers", func(v *detectVisit) float64 { return float64(v.answers) })
	add("requests", func(v *detectVisit) float64 { return float64(v.answered) })
	add("failed-requests", func(v *detectVisit) float64 { return float64(v.failed) })
	add("late-ns", func(v *detectVisit) float64 { return float64(v.late) })
	add("daemon-cpu", detectCPU)
	add("daemon-B", detectMemory)
	return r
}
