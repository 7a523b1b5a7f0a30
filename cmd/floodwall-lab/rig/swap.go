// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// swap is XDP programs of one site that take turns under one flood, in random order. Each replaces the one before in place, and is measured for a
// window. So all of them meet the same flood on the same machine within moments. On a shared machine, a single window varies by a fifth; the median
// of the ratios of many rounds varies by a few percent.
type swap struct {
	site  *Site
	flows []lab.Flow
	rows  []*Row
	least *ebpf.Program // the program that rows are compared with: the least that a program does with such packets
}

const (
	swapOffer  = 9e6                   // packets per second: more than veth delivers to any program that reads the frame
	swapSettle = 10 * time.Millisecond // run time of a program before its window, in which its data gets into the caches
	swapWarm   = 10 * swapSettle       // the same for the first of a round
	swapSeed   = 15                    // of the order

	// Swapped rows need more rounds of shorter windows, because all programs of a round share the time of one flood.
	swapRounds = 6
	swapWindow = 5
)

// swapped reports whether a row is measured by swapping.
func (t *RateTable) swapped(r *Row) bool {
	return t.cores == twoCores && r.Subject.Program != nil && r.Missing == ""
}

// swaps returns the rows that are measured by swapping, grouped by their flood.
func (t *RateTable) swaps() (all []*swap, err error) {
	type flood struct {
		site *Site
		name string
	}
	by := map[flood]*swap{}
	for _, r := range t.Rows {
		if !t.swapped(r) {
			continue
		}
		key := flood{r.Subject.Site, r.Flood}
		w := by[key]
		if w == nil {
			w = &swap{site: r.Subject.Site, flows: r.Flows}
			if w.least, err = loadLeast(&r.Flows[0]); err != nil {
				return nil, errors.Join(err, closeAll(all))
			}
			by[key], all = w, append(all, w)
		}
		w.rows = append(w.rows, r)
	}
	return all, nil
}

// closeAll unloads the programs that the swaps compare with.
func closeAll(swaps []*swap) (err error) {
	for _, w := range swaps {
		err = errors.Join(err, w.least.Close())
	}
	return err
}

// loadLeast loads the smallest program for packets of a flow. For queries to a game server, this program sends them back unchanged.
func loadLeast(f *lab.Flow) (*ebpf.Program, error) {
	if asks(f) {
		return LoadInstructions("turn", asm.Mov.Imm(asm.R0, XDPTX), asm.Return())
	}
	return LoadPeerProgram(leastFor(f))
}

// leastFor returns the smallest program for packets of any other flow: it drops them, or answers SYNs.
func leastFor(f *lab.Flow) string {
	switch {
	case answered(f):
		return Answer
	case f.Proto == lab.TCP:
		return LeastTCP
	case f.V6():
		return LeastIPv6
	case len(f.VLAN) > 0:
		return LeastVLAN
	}
	return Least
}

// answered reports whether the packets of a flow are answered.
func answered(f *lab.Flow) bool { return f.Proto == lab.TCP && f.Flags == lab.SYN || asks(f) }

// asks reports whether the packets of a flow are queries to a game server.
func asks(f *lab.Flow) bool { return f.Proto == lab.UDP && packet.A2S.Asks(f.Payload) }

// usualRounds returns the number of rounds of a flood. With Quick it is the same as for any other row.
func usualRounds(s *Session) int { return report.Choice(s.Quick, 1, swapRounds) * s.Rounds }

// swapSteps returns the number of progress steps of the swaps.
func swapSteps(swaps []*swap, s *Session) int { return len(swaps) * usualRounds(s) }

// A flood is repeated while the interval of a row is wider than swapSpread of its share, for at most mostSwaps times the usual rounds.
const (
	mostSwaps  = 3
	swapSpread = 0.10
)

// measure measures the usual rounds, and more while the interval of a row is wide. With Quick it measures only the usual rounds.
func (w *swap) measure(ctx context.Context, s *Session) error {
	usual := usualRounds(s)
	for round := 0; round < usual || round < mostSwaps*usual && !s.Quick && w.wide(); round++ {
		s.Steps.Show("round %d, %d programs under one flood", round+1, len(w.rows))
		if err := w.round(ctx, uint64(round), s.Window/swapWindow); err != nil {
			return fmt.Errorf("flood %s: %w", w.rows[0].Label, err)
		}
		if round < usual {
			s.Steps.Step()
		}
	}
	return nil
}

func (w *swap) wide() bool {
	for _, r := range w.rows {
		if r.Figure(ofLeast).WiderThan(swapSpread) {
			return true
		}
	}
	return false
}

// round floods the site once, until each program has had its window.
func (w *swap) round(ctx context.Context, round uint64, window time.Duration) error {
	attached, err := w.site.Lab.Attach(w.site.In, w.least)
	if err != nil {
		return err
	}
	defer attached.Close()
	if answered(&w.flows[0]) {
		// A packet that a program sends back arrives only if the other end has a program, too.
		sink, err := w.site.Lab.NewSink(w.site.Out, lab.DropAll)
		if err != nil {
			return err
		}
		defer sink.Close()
	}
	source, err := w.site.Lab.NewSource(w.site.Out, lab.SourceOptions{
		Flows: w.flows, CPU: SourceCPU, Seed: round + 1, Rate: swapOffer, Urgent: true,
	})
	if err != nil {
		return err
	}
	programs := []*ebpf.Program{w.least}
	for _, r := range w.rows {
		programs = append(programs, r.Subject.Program)
	}
	rates := make(report.Samples, len(programs))
	err = lab.Flooding(ctx, source, func(ctx context.Context) error {
		wait := swapWarm
		for _, i := range rand.New(rand.NewPCG(swapSeed, round)).Perm(len(programs)) {
			if err := attached.Update(programs[i]); err != nil {
				return fmt.Errorf("replace the program of device %s: %w", w.site.In.Name, err)
			}
			m, err := lab.Window(ctx, source, w.site.In, wait, window)
			if err != nil {
				return err
			}
			rates[i], wait = Capacity(m), swapSettle
		}
		return nil
	})
	if err = errors.Join(err, source.Close()); err != nil {
		return err
	}
	for i, r := range w.rows {
		read := rateReading(rates[i+1])
		if rates[0] > 0 && rates[i+1] > 0 {
			read[ofLeast] = rates[i+1] / rates[0]
		}
		r.Rounds = append(r.Rounds, read)
	}
	return nil
}

// swapNotes describe how the programs were measured.
func swapNotes(swaps []*swap, s *Session) []string {
	least, most := len(swaps[0].rows[0].Rounds), 0
	for _, w := range swaps {
		least, most = min(least, len(w.rows[0].Rounds)), max(most, len(w.rows[0].Rounds))
	}
	rounds := fmt.Sprint(least)
	if most > least {
		rounds += fmt.Sprintf(" to %d", most)
	}
	return []string{
		fmt.Sprintf("XDP programs take turns under one flood, in random order: %s rounds of %v for each. Of least: the share of the rate of a",
			rounds, s.Window/swapWindow),
		"program in the same round that does no more than a filter of one rule must; the median, and the interval that has it with",
		fmt.Sprintf("%.0f%% confidence. More rounds follow while an interval is wider than %.0f%% of the share.", 100*report.Confidence, 100*swapSpread),
	}
}
