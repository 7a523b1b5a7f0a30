package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// floodSeed makes every demonstration send the same flood.
const floodSeed = 1

// Flood writes the policy of the demonstration to a directory, with its list of bad addresses. It returns the file of the policy, and the
// flood, for programs that give no demonstration.
func Flood(dir string) (policy string, flows []lab.Flow, err error) {
	s, err := writeScript(dir, Options{})
	return s.file, s.flows(), err
}

// flows is the flood: what volumetric attacks consist of (UDP at random ports, answers of amplifiers that the attacker
// asked in the victim's name), floods of TCP, and bad addresses that others have listed, some at the service itself.
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

// newFlood prepares a flood of so many packets per second, 0 for as many as possible. It is a process that leaves its CPU
// only to the clients and to what comes back to either, so that their packets always meet the flood. A slower flood, as on a busy machine, is
// no process of its own.
func (s *scene) newFlood(rate float64) (*lab.Source, error) {
	return s.lab.NewSource(s.flood.outside, lab.SourceOptions{
		Flows: s.script.flows(), Rate: rate, CPU: s.sourceCPU, Apart: rate == 0 || rate >= lab.SmoothRate, Urgent: true, Seed: floodSeed,
	})
}

// startFlood sends until the returned function is called, which returns what went wrong and may be called again.
func startFlood(ctx context.Context, source *lab.Source) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// Capacity is how many packets of the flood the server's receiving CPU can take in a second.
type Capacity struct {
	Unprotected float64 `json:"unprotected_pps"`
	Protected   float64 `json:"protected_pps"` // or what the source can send, if that is less
}

// Each capacity is the most of several short measurements: what else this machine does can only make one less.
const (
	calibrationTime  = 200 * time.Millisecond
	calibrationTimes = 3
)

// calibrate measures what this machine can take, without Floodwall and with it.
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

// Shares of the capacities that make a good flood: it must be several times what the unprotected server can take, and
// leave capacity to the protected one, which has bursts to take and requests to answer.
const (
	overload = 3
	reserve  = 0.5
)

// rate chooses the rate of the flood in packets per second, in whole steps of 10,000.
func (c Capacity) rate() float64 {
	const step = 10_000
	best := min(overload*c.Unprotected, reserve*c.Protected)
	return max(step, float64(int(best/step))*step)
}
