// SPDX-License-Identifier: Apache-2.0

// This file is the experiment scale: the same work on one CPU, on all CPUs, and on numbers between. Each CPU has its own receive queue.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// leastShare is the goal for work with little shared memory: the packet rate of all CPUs at the same time, divided by the sum of their rates when
// they run one after the other.
const leastShare = 0.90

// scaleCases returns the rows. Each packet of the last two is counted against a limit. This writes to memory that all CPUs share: a cache line of the
// sender's prefix.
func scaleCases() []*scaleCase {
	udp := func(from string) lab.Flow {
		return rig.UDPFlood(lab.MustAddrs(from), rig.Server4, rig.SinkPort)
	}
	syns := rig.TCPFlood(lab.MustAddrs("128.0.0.0/2"), rig.Server4, 80, lab.SYN, lab.SYNOptions)
	limit := func(rate, per string) string {
		return fmt.Sprintf("default: drop\nchecks: off\nrules: [{name: limit, proto: udp, over: {rate: %s, per: from/%s}, then: drop}]\n", rate, per)
	}
	return []*scaleCase{
		{name: "least", label: "the least that a filter does", flow: udp("16.0.0.0/4")},
		{name: "drop", label: "floodwall: 20 rules that do not match", policy: rig.RulesPolicy(20), flow: udp("16.0.0.0/4")},
		{name: "limit-over", label: "floodwall: over a limit of 1000/s per /16", policy: limit("1000/s", "16"), flow: udp("64.0.0.0/10")},
		{name: "limit-within", label: "floodwall: within a limit of 1000/s per address", policy: limit("1000/s", "32"), flow: udp("64.0.0.0/10"), charged: true},
		{name: "syn", label: "floodwall: SYNs answered with cookies", policy: rig.SYNPolicy, flow: syns},
	}
}

// mostCPUs is the largest number of CPUs that are used.
const mostCPUs = 8

// scaleCase is a program, and the flood that it is measured with.
type scaleCase struct {
	name, label string
	policy      string // "": the least that a filter does
	flow        lab.Flow
	charged     bool // each packet writes to memory that all CPUs share, which costs more the more CPUs do it

	program *ebpf.Program
	round   int
	alone   map[int]float64 // in this round: packets per second of a CPU by itself
}

// runScale measures the packet rate of several CPUs compared with one, with one policy on all of them.
func runScale(ctx context.Context, s *rig.Session) error {
	return rig.With(ctx, s, func(b *rig.Builder) error {
		at := &scaleSite{Site: &rig.Site{Lab: b.Lab}, window: b.Window}
		if err := at.connect(); err != nil {
			return err
		}
		return b.Run(ctx, scaleTable(b, at))
	})
}

// scaleSite is a server with a link for each CPU.
type scaleSite struct {
	*rig.Site
	wires  []*lab.Device // of the server
	window time.Duration
}

// scaleTable returns the rows, and how their figures are published. It has a line for each case, with a row for each number of CPUs.
func scaleTable(b *rig.Builder, at *scaleSite) *rig.Table {
	t := &rig.Table{
		Title: "scale: packets on several CPUs at a time, each with a receive queue", Results: []string{"Mpps", "of-alone"},
		Notes: []string{
			"Each CPU sends to a device of its own and receives there; one program with its maps is on all devices. A rate is packets per",
			"second of the receive threads' own time. Of these alone: the share of what the same CPUs take one after the other.",
			fmt.Sprintf("Medians of %d rounds of %v.", b.Rounds, b.Window),
			"~ unsteady: the interval is wide, or others had the CPUs.",
		},
		Marks: []rig.Mark{
			{Sign: "~", On: func(r *rig.Row) bool { return r.Figure("of-alone").Unsteady() }},
			{Sign: "nothing arrived: others had the CPUs", On: func(r *rig.Row) bool { return len(r.Figure("Mpps")) == 0 }},
		},
	}
	interval := func(s report.Samples) string {
		low, high := s.Interval()
		return fmt.Sprintf("%.2f .. %.2f", low, high)
	}
	for _, n := range counts(len(at.wires)) {
		load := fmt.Sprintf("cpus=%d", n)
		t.Columns = append(t.Columns, rig.Column{Head: report.Things(n, "CPU", "CPUs") + ", Mpps", Unit: "Mpps", Show: rig.Digits(2, 1), Load: load})
		if n > 1 {
			t.Columns = append(t.Columns, rig.Column{Head: "of these alone", Unit: "of-alone", Show: rig.Digits(2, 1), Load: load},
				rig.Column{Head: "from .. to", Unit: "of-alone", Show: interval, Load: load})
		}
	}
	for _, c := range scaleCases() {
		setup := &rig.Setup{Label: c.label, Do: func(ctx context.Context) error { return at.load(ctx, b, c) }}
		for _, n := range counts(len(at.wires)) {
			r := &rig.Row{Name: fmt.Sprintf("%s/cpus=%d", c.name, n), Label: c.label, Load: fmt.Sprintf("cpus=%d", n), Line: c.name, Setup: setup}
			r.Take = func(ctx context.Context, round int) (rig.Reading, error) { return at.read(ctx, c, n, round) }
			if n > 1 && !c.charged {
				r.Goals = []rig.Goal{{Unit: "of-alone", What: "of alone", Bound: leastShare}}
			}
			t.Rows = append(t.Rows, r)
		}
	}
	return t
}

// load loads the program of a case. The program is attached only while it is measured.
func (s *scaleSite) load(ctx context.Context, b *rig.Builder, c *scaleCase) (err error) {
	if c.policy == "" {
		c.program, err = rig.LoadPeerProgram(rig.Least)
	} else {
		var a *rig.Applied
		if a, err = s.Apply(ctx, c.policy, nil); err == nil {
			c.program = a.Program
		}
	}
	if err == nil {
		b.Own(c.program)
	}
	return err
}

// read measures one round with n CPUs: first each CPU alone, unless this round has done so already, and then all at the same time.
func (s *scaleSite) read(ctx context.Context, c *scaleCase, n, round int) (rig.Reading, error) {
	if c.alone == nil || c.round != round {
		c.alone, c.round = map[int]float64{}, round
	}
	var cpus []int
	apart := 0.0
	for cpu := range n {
		if _, known := c.alone[cpu]; !known {
			rates, err := s.flood(ctx, c, []int{cpu}, uint64(round))
			if err != nil {
				return nil, err
			}
			c.alone[cpu] = rates[0]
		}
		cpus, apart = append(cpus, cpu), apart+c.alone[cpu]
	}
	rates := report.Samples{apart}
	if n > 1 {
		var err error
		if rates, err = s.flood(ctx, c, cpus, uint64(round)); err != nil {
			return nil, err
		}
	}
	read, together := rig.Reading{}, rates.Sum()
	if together > 0 {
		read["Mpps"] = together / 1e6
	}
	if n > 1 && apart > 0 {
		read["of-alone"] = together / apart
	}
	return read, nil
}

// connect builds a server with a link for each CPU, whose frames a thread on this CPU receives. The kernel does the same for a network card with as
// many queues. Only the program and its maps are shared.
func (s *scaleSite) connect() error {
	var err error
	if s.Server, err = s.Lab.Host("server"); err != nil {
		return err
	}
	for cpu := range min(runtime.NumCPU(), mostCPUs) {
		attacker, err := s.Lab.Host(fmt.Sprintf("attacker%d", cpu))
		if err != nil {
			return err
		}
		end := lab.EndOptions{CPU: lab.OnCPU(cpu), Urgent: true}
		far, near := end, end
		far.Addrs, near.Addrs = ends(cpu, 1), ends(cpu, 2)
		out, in, err := s.Lab.Connect(attacker, s.Server, lab.LinkOptions{A: far, B: near})
		if err != nil {
			return err
		}
		// A packet that a program sends back by XDP_TX arrives only if the other end has a program, too.
		if _, err := s.Lab.NewSink(out, lab.DropAll); err != nil {
			return err
		}
		s.wires = append(s.wires, in)
	}
	s.In, s.Out, s.More = s.wires[0], s.wires[0].Peer, s.wires[1:]
	return nil
}

// ends returns the addresses of an end of a CPU's link.
func ends(cpu int, host byte) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(cpu), host}), 24)}
}

// counts returns the numbers of CPUs that are measured: powers of two, and all.
func counts(all int) (list []int) {
	for n := 1; n < all; n *= 2 {
		list = append(list, n)
	}
	return append(list, all)
}

// flood floods the links of some CPUs at the same time. Each flood is sent from the CPU that receives it. It returns the packets per second of each
// receive thread's own time.
func (s *scaleSite) flood(ctx context.Context, c *scaleCase, cpus []int, round uint64) ([]float64, error) {
	var attached []link.Link
	defer func() {
		for _, l := range attached {
			_ = l.Close() // the lab closes it again
		}
	}()
	for _, cpu := range cpus {
		l, err := s.Lab.Attach(s.wires[cpu], c.program)
		if err != nil {
			return nil, err
		}
		attached = append(attached, l)
	}
	rates, failed := make([]float64, len(cpus)), make([]error, len(cpus))
	var all sync.WaitGroup
	for i, cpu := range cpus {
		all.Add(1)
		go func() {
			defer all.Done()
			rates[i], failed[i] = s.floodOne(ctx, c, cpu, round)
		}()
	}
	all.Wait()
	return rates, errors.Join(failed...)
}

// floodOne floods the link of one CPU.
func (s *scaleSite) floodOne(ctx context.Context, c *scaleCase, cpu int, round uint64) (float64, error) {
	w := s.wires[cpu]
	source, err := s.Lab.NewSource(w.Peer, lab.SourceOptions{
		Flows: []lab.Flow{c.flow}, CPU: cpu, Seed: uint64(mostCPUs)*round + uint64(cpu) + 1, Urgent: true,
	})
	if err != nil {
		return 0, err
	}
	m, err := lab.Measure(ctx, source, w, s.window)
	return rig.Capacity(m), errors.Join(err, source.Close())
}
