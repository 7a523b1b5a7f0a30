// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/periodic"
)

// Measurement is the packets that arrived at a device in some time.
type Measurement struct {
	Time    time.Duration // measured
	PPS     float64       // received packets per second
	Packets uint64        // received
	Sent    uint64        // by the source, in the same time
	Refused uint64        // by the full queue before the receiver

	// Shares of the time, 0 to 1. A receiver that neither ran nor waited all the time was not at its limit. A receiver that waited, or whose CPU time
	// was stolen, was disturbed, and its rate is too low.
	Ran    float64 // the receive thread ran
	Waited float64 // it was ready to run, but other threads had its CPU
	Busy   float64 // share of the time in which the receiving CPU was not idle
	Stolen float64 // the hypervisor gave the receiving CPU to others
}

// Cost returns the receive thread's time per packet. Unlike the rate, it is also valid if the source is slower than the receiver. A thread that
// sleeps between packets spends more time on each.
func (m Measurement) Cost() time.Duration {
	if m.Packets == 0 {
		return 0
	}
	return time.Duration(m.Ran * float64(m.Time) / float64(m.Packets))
}

// warmUp is how long a source runs before the measurement, but at most twice the measured time. In this time queues fill, caches warm up, and the CPU
// clock rises.
const warmUp = 100 * time.Millisecond

// Measure runs a source and counts at the receiving device for a time. Then it stops the source.
func Measure(ctx context.Context, s *Source, receiver *Device, window time.Duration) (m Measurement, err error) {
	err = Flooding(ctx, s, func(ctx context.Context) error {
		m, err = Window(ctx, s, receiver, min(warmUp, 2*window), window)
		return err
	})
	return m, err
}

// Flooding runs fn while a source runs, and then stops the source. The thread of fn has priority over source and receiver if these are urgent. An
// ordinary thread would wait up to a second for the time that the kernel keeps for ordinary threads: at each end of a window, and once more to stop.
func Flooding(ctx context.Context, s *Source, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	done := make(chan error, 1)
	go func() {
		defer cancel()
		runtime.LockOSThread() // never unlocked: the thread, with its priority, ends with the goroutine
		if s.options.Urgent {
			if err := hurry(0, MostUrgent); err != nil {
				done <- err
				return
			}
		}
		done <- fn(ctx)
	}()
	return errors.Join(<-done, <-stopped)
}

// MeasureRun runs a source that ends by itself, and counts at the receiving device while the source sends. Unlike with Measure, only source and
// receiver need a CPU in this time. Two urgent threads that never sleep leave no CPU to others.
func MeasureRun(ctx context.Context, s *Source, receiver *Device) (m Measurement, err error) {
	from, err := observe(s, receiver)
	if err != nil {
		return m, err
	}
	if err := s.Run(ctx); err != nil {
		return m, err
	}
	to, err := observe(s, receiver)
	if err != nil {
		return m, err
	}
	to.time = from.time.Add(s.Took())
	return to.since(from), ctx.Err()
}

// Window waits while a running source continues to send, and then counts at the receiving device for a time.
func Window(ctx context.Context, s *Source, receiver *Device, wait, window time.Duration) (m Measurement, err error) {
	if err := doze(ctx, wait); err != nil {
		return m, err
	}
	from, err := observe(s, receiver)
	if err != nil {
		return m, err
	}
	if err := doze(ctx, window); err != nil {
		return m, err
	}
	to, err := observe(s, receiver)
	if err != nil {
		return m, err
	}
	return to.since(from), nil
}

// observation contains the values of all counters at one moment.
type observation struct {
	time                    time.Time
	received, sent, refused uint64
	cpu                     cpuTime
	thread                  threadTime
}

// An observation that took longer than observeTime, because other threads had the CPU, is repeated, because its counters would not belong to its
// time. After observeTries the last one is used anyway.
const (
	observeTime  = time.Millisecond
	observeTries = 20
)

func observe(s *Source, receiver *Device) (o observation, err error) {
	for range observeTries {
		if o, err = observeOnce(s, receiver); err != nil || time.Since(o.time) < observeTime {
			break
		}
	}
	return o, err
}

func observeOnce(s *Source, receiver *Device) (o observation, err error) {
	o.time, o.sent = time.Now(), s.Sent()
	if o.received, err = receiver.Received(); err != nil {
		return o, err
	}
	if o.refused, err = receiver.Refused(); err != nil {
		return o, err
	}
	if o.thread, err = readThreadTime(receiver.napi); err != nil {
		return o, err
	}
	o.cpu, err = readCPUTime(int(receiver.options.CPU) - 1)
	return o, err
}

func (o observation) since(before observation) (m Measurement) {
	m.Time = o.time.Sub(before.time)
	m.Packets, m.Sent, m.Refused = o.received-before.received, o.sent-before.sent, o.refused-before.refused
	m.PPS = float64(m.Packets) / m.Time.Seconds()
	m.Ran = float64(o.thread.ran-before.thread.ran) / float64(m.Time)
	m.Waited = float64(o.thread.waited-before.thread.waited) / float64(m.Time)
	m.Busy, m.Stolen = o.cpu.since(before.cpu)
	return m
}

// Received returns the number of frames that the device's receive thread has taken from its queue since the device was made, in all. A veth counts
// them here with and without an XDP program (kernel drivers/net/veth.c, veth_xdp_rcv).
func (d *Device) Received() (uint64, error) { return d.counter("rx_queue_0_xdp_packets") }

// Ran returns how long the device's receive thread has run since the device was made.
func (d *Device) Ran() (time.Duration, error) {
	t, err := readThreadTime(d.napi)
	return t.ran, err
}

// Refused returns the number of frames that a source could not send to the device because its queue was full.
func (d *Device) Refused() (uint64, error) { return d.Peer.counter("tx_queue_0_xdp_xmit_errors") }

// counter reads one of the device's own counters.
func (d *Device) counter(name string) (uint64, error) {
	stats, err := d.stats()
	if err != nil {
		return 0, err
	}
	n, ok := stats[name]
	if !ok {
		return 0, fmt.Errorf("statistics of device %s: no counter %s", d.Name, name)
	}
	return n, nil
}

// sleep waits, or returns the error of the context if it ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if !periodic.Sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// dozeTime is the longest time until doze notices that its context has ended.
const dozeTime = 100 * time.Millisecond

// doze is like sleep, but makes system calls. The thread wakes up by itself. Go's timers would need another thread of the runtime, which has an
// ordinary priority.
func doze(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ctx.Err() == nil; {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		t := unix.NsecToTimespec(int64(min(left, dozeTime)))
		if err := unix.Nanosleep(&t, nil); err != nil && err != unix.EINTR {
			return fmt.Errorf("sleep: %w", err)
		}
	}
	return ctx.Err()
}

// now reads the clock that bpf_ktime_get_ns reads.
func now() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
