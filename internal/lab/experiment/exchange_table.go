package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// mostStall is how long no other CPU may stall while a list is exchanged or freed.
const mostStall = time.Millisecond

// exchangeRow is what is done with a list.
type exchangeRow struct {
	name, label string
	entries     int
	bar         bool
	visits      []exchangeVisit
}

// exchangeVisit is what came of doing it once: the longest stalls. Stalls are the part of a delay in which the kernel knew that the thread was due.
type exchangeVisit struct {
	took       time.Duration
	other, own time.Duration // of another CPU and of the one that does it, by the work, by the kernel's threads, or by an unknown one
	holder     string        // who had that other CPU; "" when there was no stall, or it is not known
	foreign    time.Duration // of any CPU, by other processes of the machine
	late       time.Duration // of any CPU, with the time that a hypervisor took
	talk       lab.TalkSummary
}

// add counts a stall. The names of the threads that do the work begin with holders.
func (v *exchangeVisit) add(s lab.Stall, holders []string) {
	v.late = max(v.late, s.Late)
	switch {
	case !caused(s.Holder, holders):
		v.foreign = max(v.foreign, s.Waited)
	case s.CPU == workCPU:
		v.own = max(v.own, s.Waited)
	case s.Waited > v.other:
		v.other, v.holder = s.Waited, s.Holder
	}
}

// kernelThreads are how the names of threads begin in which the kernel does what others have left it: free memory, among all else. The idle thread
// is none: it leaves its CPU at once, unless a hypervisor is slow to let the CPU go on.
var kernelThreads = []string{"kworker/", "ksoftirqd/", "rcu", "migration/", "cpuhp/"}

// caused reports whether a stall may be due to the work: a thread of its own or one of the kernel's had the CPU, or an unknown one.
func caused(by string, holders []string) bool {
	return by == "" || slices.ContainsFunc(slices.Concat(holders, kernelThreads), func(prefix string) bool { return strings.HasPrefix(by, prefix) })
}

// usual is about how long the work takes, and some time after it.
func (r *exchangeRow) usual(after time.Duration) time.Duration {
	if n := len(r.visits); n > 0 {
		return r.visits[n-1].took + after
	}
	return time.Duration(r.entries)*300*time.Nanosecond + after
}

// figure is one of each visit, in milliseconds.
func (r *exchangeRow) figure(of func(*exchangeVisit) time.Duration) (all report.Samples) {
	for i := range r.visits {
		all = append(all, float64(of(&r.visits[i]))/float64(time.Millisecond))
	}
	return all
}

func exchangeOther(v *exchangeVisit) time.Duration   { return v.other }
func exchangeOwn(v *exchangeVisit) time.Duration     { return v.own }
func exchangeForeign(v *exchangeVisit) time.Duration { return v.foreign }
func exchangeLate(v *exchangeVisit) time.Duration    { return v.late }
func exchangeTook(v *exchangeVisit) time.Duration    { return v.took }
func exchangeAnswer(v *exchangeVisit) time.Duration  { return v.talk.Latency.Max }

// result is the row for programs, and its bars.
func (r *exchangeRow) result(experiment, missing string) (result lab.Result, bars []*report.Bar) {
	result = lab.Result{Name: experiment + "/" + r.name, Runs: len(r.visits), Note: missing}
	if len(r.visits) == 0 {
		return result, nil
	}
	for _, m := range []struct {
		unit string
		of   func(*exchangeVisit) time.Duration
	}{
		{"other-cpu-ms", exchangeOther}, {"own-cpu-ms", exchangeOwn}, {"answer-ms", exchangeAnswer},
		{"foreign-ms", exchangeForeign}, {"late-ms", exchangeLate}, {"work-ms", exchangeTook},
	} {
		result.Metrics = append(result.Metrics, r.figure(m.of).Metric(m.unit))
	}
	var answered report.Samples
	for i := range r.visits {
		answered = append(answered, r.visits[i].talk.Share())
	}
	result.Metrics = append(result.Metrics, answered.Metric("answered"))
	if r.bar {
		most := float64(mostStall) / float64(time.Millisecond)
		bars = append(bars, report.AtMost(result.Name+" ms of another CPU", r.figure(exchangeOther).Median(), most))
	}
	return result, bars
}

// cells are the row as text.
func (r *exchangeRow) cells(missing string, bars []*report.Bar) []string {
	cells := make([]string, 12)
	cells[0], cells[11] = r.label, missing
	if len(r.visits) == 0 {
		return cells
	}
	median := func(of func(*exchangeVisit) time.Duration) string { return fmt.Sprintf("%.2f", r.figure(of).Median()) }
	longest := func(of func(*exchangeVisit) time.Duration) string { return fmt.Sprintf("%.2f", r.figure(of).Longest()) }
	cells[1] = report.SecondsText(r.figure(exchangeTook).Median() / 1000)
	cells[2], cells[3] = median(exchangeOther), longest(exchangeOther)
	for _, b := range bars {
		cells[4] = b.String()
	}
	cells[5], cells[6] = median(exchangeOwn), longest(exchangeOwn)
	cells[7], cells[8] = median(exchangeAnswer), longest(exchangeAnswer)
	if worst := slices.MaxFunc(r.visits, func(a, b exchangeVisit) int { return cmp.Compare(a.other, b.other) }); worst.holder != "" {
		cells[3] += " " + worst.holder
	}
	cells[9], cells[10] = longest(exchangeForeign), longest(exchangeLate)
	return cells
}

// exchangeNotes are the choices made.
func exchangeNotes(s *rig.Session) []string {
	return []string{
		"A thread on each CPU that goes before all others wants it 5,000 times a second. A stall is how long another thread had the CPU then.",
		fmt.Sprintf("%s of the work, each with %v after it, in which the kernel frees what is left: the longest stall of each, their median",
			report.Things(s.Rounds, "round", "rounds"), freeTime(s)),
		fmt.Sprintf("and the longest. CPU %d does the work, and an attacker on it sends %s packets/s of listed sources. CPU %d receives them, and has",
			workCPU, report.CountText(exchangeFlood), otherCPU),
		fmt.Sprintf("a service and its client, who sends %s datagrams a second; an answer counts from when its datagram was due.",
			report.CountText(exchangeRate)),
		"Stalls count in which the work or a thread of the kernel had the CPU; the longest of another CPU has the name of that thread. Others had a",
		"CPU: other processes of this machine, or none in a virtual CPU that was slow to wake up; the longest.",
		"Late in all: with the time in which not even the timer's interrupt was taken, as a hypervisor ran another machine. Answers have both.",
		"A kernel that is not preemptible does not leave its work for a thread (/sys/kernel/debug/sched/preempt says which this one is).",
	}
}
