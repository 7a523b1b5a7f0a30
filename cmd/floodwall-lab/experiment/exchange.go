// SPDX-License-Identifier: Apache-2.0

// This file is the experiment exchange. It measures for how long CPUs can do no other work while a list is exchanged or removed.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// runExchange measures the longest stalls of CPUs while a list is loaded, exchanged and removed. It does so for lists of several sizes.
func runExchange(ctx context.Context, s *rig.Session) error {
	sizes := report.Choice(s.Quick, []int{100_000}, []int{1_000_000, 10_000_000})
	return eachList(s, report.Choice(s.Sizes != nil, s.Sizes, sizes), func(l *rig.List) error {
		return rig.With(ctx, s, func(b *rig.Builder) error {
			e := &exchange{Builder: b, list: l, holder: map[*rig.Row]string{}}
			if err := e.build(ctx); err != nil {
				return err
			}
			return errors.Join(e.measure(ctx, e.table()), e.stalls.Stop())
		})
	})
}

// The traffic during the exchange: packets from listed sources, and datagrams of a client, which are all answered.
const (
	exchangeFlood = quickRate // at this rate the attacker sleeps between bursts, as the work needs the same CPU
	exchangeRate  = 2_000
	exchangePort  = 7000
	// workCPU is the CPU of the attacker and of the threads that exchange the list. otherCPU is the CPU of the receive thread, the service and its
	// client.
	workCPU  = rig.SourceCPU
	otherCPU = rig.ReceiverCPU
)

// mostStall is the maximum stall of another CPU while a list is exchanged or freed, in milliseconds.
const mostStall = 1

// table returns the rows, and defines how their figures are published.
func (e *exchange) table() *rig.Table {
	t := &rig.Table{
		Title:   fmt.Sprintf("exchange: %s; milliseconds for which CPUs do nothing else, the longest of each time", e.list.Label),
		Results: []string{"other-cpu-ms", "own-cpu-ms", "answer-ms", "foreign-ms", "late-ms", "work-ms", "answered"},
		Columns: []rig.Column{
			{Head: "seconds", Unit: "work-ms", Show: func(s report.Samples) string { return report.SecondsText(s.Median() / 1000) }},
			{Head: "another CPU: median", Unit: "other-cpu-ms", Show: rig.Digits(2, 1)}, {Head: "longest", Text: e.longest},
			{Head: "its own CPU: median", Unit: "own-cpu-ms", Show: rig.Digits(2, 1)}, {Head: "longest", Unit: "own-cpu-ms", Show: rig.Worst(2, 1)},
			{Head: "answer: median", Unit: "answer-ms", Show: rig.Digits(2, 1)}, {Head: "longest", Unit: "answer-ms", Show: rig.Worst(2, 1)},
			{Head: "others had a CPU", Unit: "foreign-ms", Show: rig.Worst(2, 1)}, {Head: "late in all", Unit: "late-ms", Show: rig.Worst(2, 1)},
		},
		Notes: exchangeNotes(e.Session),
	}
	for _, group := range [][]*rig.Row{
		e.floodwall("xdp", 0), e.floodwall("nftables", slowNft), e.floodwall("iptables", slowOther),
		e.bpfMap("bpf-hash", "BPF hash map", !e.list.V6 && e.list.Hosts, fillHash), e.bpfMap("bpf-lpm", "BPF LPM trie", true, fillTrie),
	} {
		if slices.ContainsFunc(group, func(r *rig.Row) bool { return e.Wants(r.Name) }) {
			t.Rows = append(t.Rows, group...)
		}
	}
	for i, r := range t.Rows {
		r.Stage = i // in each round, a row needs what the row before has done
	}
	return t
}

// longest returns the longest stall of another CPU as text, with the thread that had the CPU.
func (e *exchange) longest(r *rig.Row) string {
	figures := r.Figure("other-cpu-ms")
	if len(figures) == 0 {
		return ""
	}
	return strings.TrimSpace(rig.Worst(2, 1)(figures) + " " + e.holder[r])
}

// exchangeNotes returns texts that describe the choices of the experiment.
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

// ownHolders are the names of Floodwall and of the programs that it runs.
var ownHolders = []string{"floodwall", "nft", "ipset", "iptables", "ip6tables"}

// The numbers of addresses from which on a target or a map takes minutes. nft takes three seconds for 100,000 addresses, and much more than ten times
// as long for a million.
const (
	slowNft   = 500_000
	slowOther = rig.SlowSize
)

// floodwall returns the rows of Floodwall on a target. The second exchange frees the first list, because the previous generation is kept for a
// rollback. From the number slow of addresses on, the rows take minutes. If slow is 0, they never do.
func (e *exchange) floodwall(target string, slow int) []*rig.Row {
	row := func(name, label string, work ...func(context.Context) error) *rig.Row {
		return e.row("floodwall/"+target+"/"+name, "floodwall, "+target+": "+label, ownHolders, work...)
	}
	apply := func(edition int) func(context.Context) error {
		return func(ctx context.Context) error {
			return e.ours.run(ctx, "apply", e.policy(edition), "--target", target)
		}
	}
	load := row("load", "a list where there was none", apply(0))
	exchange := row("exchange", "another list in its place", apply(1), apply(0))
	unload := row("unload", "all is taken away", func(ctx context.Context) error { return e.ours.run(ctx, "unload") })
	all := []*rig.Row{load, exchange, unload}
	if target == "xdp" {
		for _, r := range all[1:] {
			r.Goals = []rig.Goal{{Unit: "other-cpu-ms", What: "ms of another CPU", Bound: mostStall, Most: true}}
		}
		all = slices.Insert(all, 1, row("quiet", "nothing is done", func(ctx context.Context) error {
			wait(ctx, freeTime(e.Session))
			return ctx.Err()
		}))
	}
	for _, r := range all {
		r.Missing = report.Choice(slow > 0 && len(e.list.Prefixes) >= slow && !e.All, "takes minutes: measured with --all", "")
	}
	return all
}

// bpfMap returns the rows of a BPF map with an entry for each address. This process fills and frees the map.
func (e *exchange) bpfMap(name, label string, fits bool, fill func(*rig.List) (rig.LoadedPeer, error)) []*rig.Row {
	var filled rig.LoadedPeer
	free := func() error { return closePeer(&filled) }
	e.Owned = append(e.Owned, free)
	own := []string{ownName()}
	all := []*rig.Row{
		e.row(name+"/fill", label+": filled", own, func(context.Context) error {
			return onCPU(workCPU, lab.Ordinary, func() (err error) { filled, err = fill(e.list); return err })
		}),
		e.row(name+"/free", label+": freed", own, func(context.Context) error { return onCPU(workCPU, lab.Ordinary, free) }),
	}
	for _, r := range all {
		r.Missing = report.Choice(fits, "", "does not hold such a list here")
		if !memoryFor(e.list) {
			r.Missing = "not enough memory"
		}
	}
	return all
}

// row returns a row with one or more pieces of work on the list. Each piece results in a reading. The names of the threads that do the work start
// with one of holders.
func (e *exchange) row(name, label string, holders []string, work ...func(context.Context) error) *rig.Row {
	r := &rig.Row{Name: e.list.Name + "/" + name, Label: label}
	r.Take = func(ctx context.Context, _ int) (read rig.Reading, err error) {
		for _, do := range work {
			if read != nil {
				r.Rounds = append(r.Rounds, read)
			}
			if read, err = e.visit(ctx, r, holders, do); err != nil {
				return nil, err
			}
		}
		return read, nil
	}
	return r
}

// measure measures all rounds during a flood. It publishes the figures even if the rest cannot be measured.
func (e *exchange) measure(ctx context.Context, t *rig.Table) error {
	defer t.Publish(e.Outcome)
	source, err := e.Lab.NewSource(e.site.Out, lab.SourceOptions{
		Flows: []lab.Flow{rig.Flood(e.list.Listed)}, CPU: workCPU, Batch: besideBatch, Rate: exchangeFlood, Urgent: true,
	})
	if err != nil {
		return err
	}
	err = lab.Flooding(ctx, source, func(ctx context.Context) error { return e.TakeAll(ctx, t) })
	return errors.Join(err, source.Close())
}

// usual returns the approximate time that a row's work takes.
func (e *exchange) usual(r *rig.Row) time.Duration {
	if n := len(r.Rounds); n > 0 {
		return time.Duration(r.Rounds[n-1]["work-ms"] * float64(time.Millisecond))
	}
	return time.Duration(len(e.list.Prefixes)) * 300 * time.Nanosecond
}

// visit does some work, and reads the stalls until the kernel has settled. The names of the threads that do the work start with one of holders.
func (e *exchange) visit(ctx context.Context, r *rig.Row, holders []string, work func(context.Context) error) (rig.Reading, error) {
	from, err := lab.Now()
	if err != nil {
		return nil, err
	}
	talking, stop := context.WithCancel(ctx)
	defer stop()
	var talk lab.TalkSummary
	talked := make(chan error, 1)
	go func() {
		var err error
		talk, err = e.talk(talking, e.usual(r)+freeTime(e.Session))
		talked <- err
	}()
	start := time.Now()
	if err := work(ctx); err != nil {
		stop()
		return nil, errors.Join(err, notStopped(<-talked))
	}
	took := time.Since(start)
	wait(ctx, freeTime(e.Session))
	to, err := lab.Now()
	if err = errors.Join(err, <-talked, ctx.Err()); err != nil {
		return nil, err
	}
	read, holder := stallsReading(e.stalls.Between(from, to), holders)
	if other := read["other-cpu-ms"]; holder != "" && (e.holder[r] == "" || other > r.Figure("other-cpu-ms").Longest()) {
		e.holder[r] = holder
	}
	read["answer-ms"], read["work-ms"], read["answered"] = millis(talk.Latency.Max), millis(took), talk.Share()
	return read, nil
}

// millis returns a time in milliseconds.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// stallsReading returns the longest stalls during one piece of work. other-cpu-ms and own-cpu-ms are stalls of another CPU and of the working CPU, by
// the work, by kernel threads, or by an unknown thread. foreign-ms are stalls of any CPU by other processes of the machine. late-ms are stalls of any
// CPU, including the time that a hypervisor took. A stall is the part of a delay in which the kernel knew that the thread was due. The result holder
// is the thread that had the other CPU in its longest stall.
func stallsReading(stalls []lab.Stall, holders []string) (read rig.Reading, holder string) {
	read = rig.Reading{"other-cpu-ms": 0, "own-cpu-ms": 0, "foreign-ms": 0, "late-ms": 0}
	for _, s := range stalls {
		unit := "other-cpu-ms"
		switch waited := millis(s.Waited); {
		case !caused(s.Holder, holders):
			unit = "foreign-ms"
		case s.CPU == workCPU:
			unit = "own-cpu-ms"
		case waited > read[unit]:
			holder = s.Holder
		}
		read[unit] = max(read[unit], millis(s.Waited))
		read["late-ms"] = max(read["late-ms"], millis(s.Late))
	}
	return read, holder
}

// kernelThreads are prefixes of the names of kernel threads that do deferred work, such as freeing memory. The idle thread is not one of them: it
// leaves its CPU at once, unless a hypervisor is slow to run the CPU.
var kernelThreads = []string{"kworker/", "ksoftirqd/", "rcu", "migration/", "cpuhp/"}

// caused reports whether the work may be the cause of a stall. This is so if the CPU had one of the work's threads, a kernel thread, or an unknown
// thread.
func caused(by string, holders []string) bool {
	return by == "" || slices.ContainsFunc(slices.Concat(holders, kernelThreads), func(prefix string) bool { return strings.HasPrefix(by, prefix) })
}

// exchange is a list, and the site at which the list is exchanged.
type exchange struct {
	*rig.Builder
	list   *rig.List
	dir    string
	site   *rig.Site
	ours   *product
	stalls *lab.Stalls
	holder map[*rig.Row]string // the thread that had another CPU in a row's longest stall; "" if there was none, or if it is not known
}

// build builds the site. An attacker and a client are at one end of a link. Floodwall and a service are at the other end.
func (e *exchange) build(ctx context.Context) (err error) {
	program, err := e.Find("floodwall")
	if err != nil {
		return err
	}
	if e.dir, err = e.TempDir(); err != nil {
		return err
	}
	end := lab.EndOptions{CPU: lab.OnCPU(otherCPU), Urgent: true, Queue: true}
	client := end
	client.First = true
	if e.site, err = e.Connect(client, end); err != nil {
		return err
	}
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		if err := e.site.Server.Route(netip.MustParsePrefix(half), e.site.Out.Addrs[0].Addr(), e.site.In); err != nil {
			return err
		}
	}
	stop, err := e.Lab.NewEchoProcess(e.site.Server, netip.AddrPortFrom(rig.Server4, exchangePort), otherCPU, lab.MoreUrgent)
	if err != nil {
		return err
	}
	e.Owned = append(e.Owned, stop)
	if e.ours, err = newProduct(e.site.Server, program, e.dir); err != nil {
		return err
	}
	e.Owned = append(e.Owned, e.ours.close)
	e.ours.cpu = workCPU
	if err := e.writeLists(); err != nil {
		return err
	}
	e.stalls, err = e.site.Server.WatchStalls(ctx, workCPU, otherCPU)
	return err
}

// writeLists writes two editions of the list, and a policy for each. The second edition lacks a tenth of the entries.
func (e *exchange) writeLists() error {
	fewer := *e.list
	fewer.Prefixes = fewer.Prefixes[:len(fewer.Prefixes)-max(len(fewer.Prefixes)/10, 1)]
	for i, l := range []*rig.List{e.list, &fewer} {
		file := filepath.Join(e.dir, fmt.Sprintf("list%d.txt", i))
		if err := report.WriteFile(file, l.Write); err != nil {
			return err
		}
		text := fmt.Sprintf("devices: [%s]\ndefault: drop\nsets: {listed: {file: %s}}\nrules: [{name: listed, from: $listed, then: drop}]\n"+
			"services: [{name: game, port: udp/%d}]\n", e.site.In.Name, strconv.Quote(file), exchangePort)
		if err := os.WriteFile(e.policy(i), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// policy returns the file of the policy with the given edition of the list.
func (e *exchange) policy(edition int) string {
	return filepath.Join(e.dir, fmt.Sprintf("policy%d.yaml", edition))
}

// freeTime returns the time after a command in which the kernel may still free memory. The kernel's workers do so after each CPU has left its old
// code (an RCU grace period).
func freeTime(s *rig.Session) time.Duration {
	return report.Choice(s.Quick, 200*time.Millisecond, time.Second)
}

// notStopped returns err, or nil if err only says that something was stopped.
func notStopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// talk makes a client send datagrams for a time.
func (e *exchange) talk(ctx context.Context, lasts time.Duration) (lab.TalkSummary, error) {
	return lab.Talk(ctx, lab.TalkOptions{
		Host: e.site.Out.Host, Server: netip.AddrPortFrom(rig.Server4, exchangePort), From: []netip.Addr{e.site.Out.Addrs[0].Addr()}, Clients: 1,
		Port: firstClient, Payload: make([]byte, lab.TalkStamp), Rate: exchangeRate, Duration: lasts, Timeout: udpTimeout, CPU: otherCPU, Urgent: true,
	})
}

// ownName returns the kernel's name of this process.
func ownName() string {
	name, _ := os.ReadFile("/proc/self/comm") // the file exists
	return strings.TrimSpace(string(name))
}
