// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// floodSeed is the seed of the flood. It is constant, so that every demonstration sends the same flood.
const floodSeed = 1

// flows returns the flows of the flood. They are the parts of volumetric attacks: UDP to random ports, reflected answers of amplifiers, floods of
// TCP, and packets from listed bad addresses. Some of the last go to the service itself.
func (s *script) flows() []lab.Flow {
	random, listed := lab.In(randomSources), lab.Listed(s.listed)
	flows := []lab.Flow{
		{From: random, SPort: lab.AnyPort, DPort: lab.AnyPort, Size: 128, Weight: 12},
		{From: random, SPort: lab.Port(53), DPort: lab.AnyPort, Size: 512, Weight: 3},
		{From: random, SPort: lab.Port(123), DPort: lab.AnyPort, Size: 482, Weight: 3},
		{From: random, SPort: lab.Port(11211), DPort: lab.AnyPort, Size: 512, Weight: 3},
		{From: random, Proto: lab.TCP, SPort: lab.AnyPort, DPort: lab.Port(webPort), Flags: lab.SYN | lab.FIN, Weight: 9},
		{From: random, Proto: lab.TCP, SPort: lab.AnyPort, DPort: lab.AnyPort, Flags: lab.ACK, Weight: 25},
		{From: listed, SPort: lab.AnyPort, DPort: lab.AnyPort, Size: 128, Weight: 5},
		{From: listed, Proto: lab.TCP, SPort: lab.AnyPort, DPort: lab.Port(webPort), Flags: lab.SYN, Options: lab.SYNOptions, Weight: 40},
	}
	for i := range flows {
		flows[i].To = lab.Addr(serverAddr)
	}
	return flows
}

// newFlood prepares a flood with the given rate in packets per second. The rate 0 means as many packets as possible. The flood is a separate process.
// It shares its CPU only with the clients, and with packets that return to the flood or to the clients. So packets of the clients always compete with
// the flood. A slower flood, as on a busy machine, is not a separate process.
func (s *scene) newFlood(rate float64) (*lab.Source, error) {
	return s.lab.NewSource(s.flood.outside, lab.SourceOptions{
		Flows: s.script.flows(), Rate: rate, CPU: s.sourceCPU, Apart: rate == 0 || rate >= lab.SmoothRate, Urgent: true, Seed: floodSeed,
	})
}

// startFlood sends the flood until stop is called. The function stop returns the error of the flood. It may be called more than once.
func startFlood(ctx context.Context, source *lab.Source) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// Capacity is the number of packets of the flood per second that the server's receiving CPU can handle.
type Capacity struct {
	Unprotected float64 `json:"unprotected_pps"`
	Protected   float64 `json:"protected_pps"` // or the rate that the source can send, if that is less
}

// Each capacity is the highest value of several short measurements. Other load on this machine can only make a value lower.
const (
	calibrationTime  = 200 * time.Millisecond
	calibrationTimes = 3
)

// calibrate measures the capacity of this machine without and with Floodwall.
func (s *scene) calibrate(ctx context.Context) (c Capacity, err error) {
	source, err := s.newFlood(0)
	if err != nil {
		return c, err
	}
	defer source.Close()
	if c.Unprotected, err = s.capacity(ctx, source); err != nil {
		return c, err
	}
	if _, err := s.apply(ctx); err != nil {
		return c, err
	}
	if c.Protected, err = s.capacity(ctx, source); err != nil {
		return c, err
	}
	return c, s.unload(ctx)
}

func (s *scene) capacity(ctx context.Context, source *lab.Source) (most float64, err error) {
	for range calibrationTimes {
		m, err := lab.Measure(ctx, source, s.flood.server, calibrationTime)
		if err != nil {
			return 0, fmt.Errorf("calibration: %w", err)
		}
		most = max(most, m.PPS)
	}
	return most, nil
}

// The rate of a good flood, relative to the capacities. It must be several times the capacity of the unprotected server. It must leave a reserve to
// the protected server, which also has to handle bursts and requests.
const (
	overload = 3
	reserve  = 0.5
)

// rate returns the rate of the flood in packets per second. It is a multiple of 10,000.
func (c Capacity) rate() float64 {
	const step = 10_000
	best := min(overload*c.Unprotected, reserve*c.Protected)
	return max(step, float64(int(best/step))*step)
}
