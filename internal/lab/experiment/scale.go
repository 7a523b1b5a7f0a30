// This file is the experiment of that name: the same work on one to all CPUs, each with a receive queue of its own.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runScale measures how much more several CPUs take than one, with one policy on all of them.
func runScale(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		b := &scaleBuilder{Builder: rig.Builder{Session: s, Lab: l}}
		defer b.Close()
		if err := b.connect(); err != nil {
			return err
		}
		for _, c := range scaleCases() {
			if err := b.load(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", c.label, err)
			}
		}
		defer b.publish() // what there is, also when the rest cannot be measured
		return b.measure(ctx)
	})
}

// mostCPUs is how many are used at most.
const mostCPUs = 8

// scaleBuilder makes the table.
type scaleBuilder struct {
	rig.Builder
	site  *rig.Site
	wires []*lab.Device // of the server, one for each CPU
	cases []*scaleTestCase
}

// connect builds a server with a wire for each CPU, whose frames a thread of that CPU receives. A network card with as many
// queues has the kernel do the same: what is shared are the program and its maps.
func (b *scaleBuilder) connect() error {
	b.site = &rig.Site{Lab: b.Lab}
	var err error
	if b.site.Server, err = b.Lab.Host("server"); err != nil {
		return err
	}
	for cpu := range min(runtime.NumCPU(), mostCPUs) {
		attacker, err := b.Lab.Host(fmt.Sprintf("attacker%d", cpu))
		if err != nil {
			return err
		}
		end := lab.EndOptions{CPU: lab.OnCPU(cpu), Urgent: true}
		far, near := end, end
		far.Addrs, near.Addrs = ends(cpu, 1), ends(cpu, 2)
		out, in, err := b.Lab.Connect(attacker, b.site.Server, lab.LinkOptions{A: far, B: near})
		if err != nil {
			return err
		}
		// What a program sends back by XDP_TX arrives only where one is attached too.
		if _, err := b.Lab.NewSink(out, lab.DropAll); err != nil {
			return err
		}
		b.wires = append(b.wires, in)
	}
	b.site.In, b.site.Out, b.site.More = b.wires[0], b.wires[0].Peer, b.wires[1:]
	return nil
}

// ends are the addresses of an end of a CPU's wire.
func ends(cpu int, host byte) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(cpu), host}), 24)}
}

// measure takes all rounds: each CPU by itself, and growing numbers of them at a time.
func (b *scaleBuilder) measure(ctx context.Context) error {
	label := func(c *scaleTestCase) string { return c.label }
	return rig.InTurns(b.Session, b.cases, label, func(round int, c *scaleTestCase) error { return b.round(ctx, c, uint64(round)) })
}

// round takes one round of a case.
func (b *scaleBuilder) round(ctx context.Context, c *scaleTestCase, round uint64) error {
	alone := make([]float64, len(b.wires))
	for cpu := range b.wires {
		rates, err := b.flood(ctx, c, []int{cpu}, round)
		if err != nil {
			return err
		}
		alone[cpu] = rates[0]
	}
	var cpus []int
	for _, n := range counts(len(b.wires)) {
		for len(cpus) < n {
			cpus = append(cpus, len(cpus))
		}
		rates := alone[:n]
		if n > 1 {
			var err error
			if rates, err = b.flood(ctx, c, cpus, round); err != nil {
				return err
			}
		}
		together, apart := sum(rates), sum(alone[:n])
		c.rates[n] = append(c.rates[n], together)
		if apart > 0 {
			c.shares[n] = append(c.shares[n], together/apart)
		}
	}
	return nil
}

// counts are the numbers of CPUs that are measured: powers of two, and all.
func counts(all int) (list []int) {
	for n := 1; n < all; n *= 2 {
		list = append(list, n)
	}
	return append(list, all)
}

func sum(rates []float64) (all float64) {
	for _, v := range rates {
		all += v
	}
	return all
}

// flood floods the wires of some CPUs at the same time, each from the CPU that receives there, and returns what each takes of its
// thread's own time, in packets per second.
func (b *scaleBuilder) flood(ctx context.Context, c *scaleTestCase, cpus []int, round uint64) ([]float64, error) {
	var attached []link.Link
	defer func() {
		for _, l := range attached {
			_ = l.Close() // the lab closes it again
		}
	}()
	for _, cpu := range cpus {
		l, err := b.Lab.Attach(b.wires[cpu], c.program)
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
			rates[i], failed[i] = b.floodOne(ctx, c, cpu, round)
		}()
	}
	all.Wait()
	return rates, errors.Join(failed...)
}

// floodOne floods the wire of one CPU.
func (b *scaleBuilder) floodOne(ctx context.Context, c *scaleTestCase, cpu int, round uint64) (float64, error) {
	w := b.wires[cpu]
	source, err := b.Lab.NewSource(w.Peer, lab.SourceOptions{
		Flows: []lab.Flow{c.flow}, CPU: cpu, Seed: uint64(mostCPUs)*round + uint64(cpu) + 1, Urgent: true,
	})
	if err != nil {
		return 0, err
	}
	m, err := lab.Measure(ctx, source, w, b.Window)
	return rig.Capacity(m), errors.Join(err, source.Close())
}

// scaleTestCase is a program, and the flood that it is measured with.
type scaleTestCase struct {
	name, label string
	policy      string // "": the least that a filter does
	flow        lab.Flow
	charged     bool // each packet writes to memory that all CPUs have in common, which costs more the more CPUs do

	program *ebpf.Program
	rates   map[int]report.Samples // packets per second of all CPUs, by how many
	shares  map[int]report.Samples // of what the same CPUs take one after the other
}
