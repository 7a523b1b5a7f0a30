// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// flood is a flood from all senders to one node.
type flood struct {
	to     int
	source *lab.Source
	stop   func() error
}

// Rates from all senders together to one node, in packets per second: of an attack, and of normal use of the service.
const (
	attackRate = 4000 // five times the limit of each sender
	usualRate  = 80   // a tenth of the limit
)

// clientPorts are source ports of clients. Checks would drop packets from the ports of servers that attackers use as reflectors.
var clientPorts = lab.Ports{First: 40000, Last: 60000}

// flood starts a flood from the senders to a node.
func (w *fleetShow) flood(ctx context.Context, to int, rate float64) error {
	return w.send(ctx, to, rate, lab.Flow{From: lab.Each(senders), SPort: clientPorts, Size: 200})
}

// send starts to send packets to the attacked port of a node.
func (w *fleetShow) send(ctx context.Context, to int, rate float64, f lab.Flow) error {
	f.To, f.DPort = lab.Addr(w.site.nodes[to].address), lab.Port(quicPort)
	cpu, err := anyCPU()
	if err != nil {
		return err
	}
	source, err := w.site.lab.NewSource(w.site.outside, lab.SourceOptions{
		Flows: []lab.Flow{f}, Rate: rate, CPU: cpu, Seed: uint64(to + 1),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	w.floods = append(w.floods, &flood{to, source, sync.OnceValue(func() error {
		cancel()
		return <-done
	})})
	return nil
}

// stopFloods ends all floods. The floods stay in the list, because their counts are still needed.
func (w *fleetShow) stopFloods() error {
	var errs []error
	for _, f := range w.floods {
		errs = append(errs, f.stop())
	}
	return errors.Join(errs...)
}

// sent returns the number of packets that the attackers have sent to a node.
func (w *fleetShow) sent(to int) (n uint64) {
	for _, f := range w.floods {
		if f.to == to {
			n += f.source.Sent()
		}
	}
	return n
}

// anyCPU returns a CPU that this process may use.
func anyCPU() (int, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return 0, err
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	return cpu, nil
}
