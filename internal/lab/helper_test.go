// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// gentle is a rate for captured frames: a queue of them takes 50 ms.
const gentle = 5000

// patience is the longest wait for things that happen immediately on a quiet machine.
const patience = time.Minute

// pair is two hosts with a link between them.
type pair struct {
	lab  *Lab
	a, b *Device
}

// plainLink has hosts at .1 and .2 of 10.0.0.0/24 and fd00::/64.
var plainLink = LinkOptions{
	A: EndOptions{Addrs: ParseAddrs("10.0.0.1/24 fd00::1/64"), Urgent: true},
	B: EndOptions{Addrs: ParseAddrs("10.0.0.2/24 fd00::2/64"), Urgent: true, CPU: OnCPU(runtime.NumCPU() - 1)},
}

// newPair builds a pair with a plain link that ends with the test.
func newPair(t testing.TB) pair {
	t.Helper()
	return newPairOn(t, plainLink)
}

// newPairOn builds a pair that ends with the test.
func newPairOn(t testing.TB, o LinkOptions) pair {
	t.Helper()
	testutil.RequireRoot(t)
	l, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	p, err := connectPair(l, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func connectPair(l *Lab, o LinkOptions) (p pair, err error) {
	p.lab = l
	left, err := l.Host("left")
	if err != nil {
		return p, err
	}
	right, err := l.Host("right")
	if err != nil {
		return p, err
	}
	p.a, p.b, err = l.Connect(left, right, o)
	return p, err
}

func (p pair) sink(t testing.TB, d *Device, program string) *Sink {
	t.Helper()
	s, err := p.lab.NewSink(d, program)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p pair) source(t testing.TB, o SourceOptions) *Source {
	t.Helper()
	if o.Seed == 0 {
		o.Seed = testutil.Seed(t)
	}
	s, err := p.lab.NewSource(p.a, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send runs a source to its end.
func (p pair) send(t testing.TB, o SourceOptions) *Source {
	t.Helper()
	s := p.source(t, o)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// queued is fewer frames than the queue of a veth device holds: none of them is lost, however busy the machine is.
const queued = 200

// exchange sends n frames of a flow, a queue at a time, and returns the captured frames.
func (p pair) exchange(t testing.TB, sink *Sink, flow Flow, n int) [][]byte {
	t.Helper()
	var all [][]byte
	for seed := testutil.Seed(t); len(all) < n; seed++ {
		count := min(queued, n-len(all))
		p.send(t, SourceOptions{Flows: []Flow{flow}, Rate: gentle, Count: uint64(count), Seed: seed})
		all = append(all, frames(t, sink, count)...)
	}
	return all
}

// runs has a source that sends at most a queue. It runs the source some times, and returns the captured frames.
func (p pair) runs(t testing.TB, s *Source, sink *Sink, times int) [][]byte {
	t.Helper()
	var all [][]byte
	for range times {
		before := s.Sent()
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		all = append(all, frames(t, sink, int(s.Sent()-before))...)
	}
	return all
}

// frames returns the next n captured frames.
func frames(t testing.TB, s *Sink, n int) [][]byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all [][]byte
	for range n {
		frame, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d frames: %v", len(all), n, err)
		}
		all = append(all, frame)
	}
	return all
}

// await polls until ok returns true, but at most for patience.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// Counted returns the frames and their bytes that a counting or capturing sink has seen.
func (s *Sink) Counted() (packets, bytes uint64, err error) {
	if s.counted == nil {
		return 0, 0, errors.New("this sink does not count")
	}
	var perCPU []labCounters
	if err := s.counted.Lookup(uint32(0), &perCPU); err != nil {
		return 0, 0, fmt.Errorf("counters: %w", err)
	}
	for _, c := range perCPU {
		packets += c.Packets
		bytes += c.Bytes
	}
	return packets, bytes, nil
}

// Next waits for the next frame that a capturing sink has seen. A frame longer than 2048 bytes is cut.
func (s *Sink) Next(ctx context.Context) ([]byte, error) {
	if s.captures == nil {
		return nil, errors.New("this sink does not capture")
	}
	if deadline, ok := ctx.Deadline(); ok {
		s.captures.SetDeadline(deadline)
	}
	record, err := s.captures.Read()
	if err != nil {
		return nil, fmt.Errorf("captured frame: %w", err)
	}
	length := int(binary.NativeEndian.Uint32(record.RawSample))
	frame := record.RawSample[4:]
	return frame[:min(length, len(frame))], nil
}

// Requests returns the number of requests that reached the server.
func (s *Server) Requests() uint64 { return s.requests.Load() }
