// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

const ruleSlot = image.SlotRules + 3

// acting returns an image that gives all packets a verdict. Its slot has an entry in the map of actions.
func acting(verdict uint8, slip, sample uint32) *image.Image {
	im := always(ruleSlot, verdict|image.Special)
	im.Slots = ruleSlot + 1
	im.Constants["answers"] = verdict == truncate
	im.Constants["specials"] = true
	im.Constants["sampling"] = sample > 0
	im.Shapes = map[string]image.Shape{image.Actions: {ValueSize: uint32(image.ActionSize), Entries: ruleSlot + 1}}
	im.Fill = func(memory map[string][]byte) error {
		image.Put(memory[image.Actions][image.ActionSize*ruleSlot:], image.ActionRecord{Slip: slip, Sample: sample})
		return nil
	}
	return im
}

// within checks that got of n packets is a plausible result for a probability of 1/oneIn. It allows six standard deviations, which one run in 500
// million exceeds.
func within(t *testing.T, got, n uint64, oneIn float64) {
	t.Helper()
	mean := float64(n) / oneIn
	if sigma := math.Sqrt(mean * (1 - 1/oneIn)); math.Abs(float64(got)-mean) > 6*sigma {
		t.Errorf("%d of %d packets, want %.0f ± %.0f", got, n, mean, 6*sigma)
	}
}

// TestSlip answers one in three queries, and drops the others.
func TestSlip(t *testing.T) {
	p := load(t, reachedBy(acting(truncate, 3, 0), serverMAC))
	b := query{msg: ask("www.example.", 1)}.frame(t)
	const n = 10_000
	var replies image.Counter
	for range n {
		action, out := through(t, p, b)
		switch action {
		case xdpTX:
			replies.Packets++
			replies.Bytes += uint64(len(out))
		case xdpDrop:
		default:
			t.Fatalf("XDP action %d", action)
		}
	}
	within(t, replies.Packets, n, 3)
	counted := counters(t, p)
	if all := (image.Counter{Packets: n, Bytes: n * uint64(len(b))}); counted[ruleSlot] != all || counted[image.SlotReplies] != replies {
		t.Errorf("counted %v, want %v queries and %v replies", counted, all, replies)
	}
}

// repeat runs a program many times on a frame, as fast as possible.
func repeat(t *testing.T, p *datapath.Program, b []byte, times uint32) {
	t.Helper()
	options := ebpf.RunOptions{Data: b, DataOut: make([]byte, len(b)+256), Repeat: times}
	if _, err := p.Native().Run(&options); err != nil {
		t.Fatal(err)
	}
}

func samplesOf(t *testing.T, p *datapath.Program) *datapath.Samples {
	t.Helper()
	s, err := p.Samples()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// drain reads all samples in the ring. It returns the numbers of read and of lost samples.
func drain(t *testing.T, s *datapath.Samples) (read, lost uint64) {
	t.Helper()
	for empty := 0; empty < 3; { // on a busy machine the time limit of a read can expire before it reads
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := s.Read(ctx)
		cancel()
		switch {
		case err == nil:
			read, empty = read+1, 0
		case errors.Is(err, context.DeadlineExceeded):
			empty++
		default:
			t.Fatal(err)
		}
	}
	return read, lostOf(t, s)
}

func lostOf(t *testing.T, s *datapath.Samples) uint64 {
	t.Helper()
	lost, err := s.Lost()
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

// TestSamples samples all packets, of all sizes and with each verdict. The samples must equal the packets.
func TestSamples(t *testing.T) {
	for _, verdict := range []uint8{0, 1, truncate} {
		p := load(t, acting(verdict, 0, 1))
		s := samplesOf(t, p)
		message := query{msg: ask("www.example.", 1)}.frame(t)
		for _, length := range []int{len(message), 126, 127, 128, 129, 1514, 9000} {
			b := append(bytes.Clone(message), make([]byte, length-len(message))...)
			for i := len(message); i < length; i++ {
				b[i] = byte(i)
			}
			before := time.Now()
			through(t, p, b)
			after := time.Now()
			got, err := s.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Frame, b[:min(length, 128)]) || got.Length != length {
				t.Errorf("of %d bytes: %d\n%x, want\n%x", length, got.Length, got.Frame, b[:min(length, 128)])
			}
			if got.Slot != ruleSlot || got.Code != verdict || got.Index != 1 {
				t.Errorf("slot %d, verdict %d, device %d, want %d, %d, the loopback device", got.Slot, got.Code, got.Index, ruleSlot, verdict)
			}
			if got.Time.Before(before.Add(-time.Millisecond)) || got.Time.After(after.Add(time.Millisecond)) {
				t.Errorf("at %v, want %v to %v", got.Time, before, after)
			}
		}
	}
}

// TestSamplesAtEnd reads with a context that has ended. Samples from before the end must be returned. Reading must then end, although new samples
// arrive.
func TestSamplesAtEnd(t *testing.T) {
	p := load(t, acting(0, 0, 1))
	s := samplesOf(t, p)
	message := query{msg: ask("www.example.", 1)}.frame(t)
	const taken = 3
	for range taken {
		through(t, p, message)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range taken {
		if got, err := s.Read(ctx); err != nil || got.Length != len(message) {
			t.Fatalf("sample %d: %d bytes, %v", i, got.Length, err)
		}
		through(t, p, message)
	}
	for i := range 3 {
		if _, err := s.Read(ctx); errors.Is(err, context.Canceled) {
			return
		}
		through(t, p, message)
		if i == 2 {
			t.Error("samples come that were taken after the end")
		}
	}
}

// TestSampleChance takes samples of one in seven packets, and of no question.
func TestSampleChance(t *testing.T) {
	p := load(t, acting(1, 0, 7))
	s := samplesOf(t, p)
	b := frame(t, syn)
	for range 1000 {
		if _, err := p.Ask(b); err != nil {
			t.Fatal(err)
		}
	}
	if read, lost := drain(t, s); read+lost != 0 {
		t.Errorf("of questions: %d samples, %d lost", read, lost)
	}
	const n = 20_000
	repeat(t, p, b, n)
	read, lost := drain(t, s)
	within(t, read+lost, n, 7)
}

// TestSampleRate sends packets faster than samples are allowed. Each sample must be read or counted as lost.
func TestSampleRate(t *testing.T) {
	p := load(t, acting(1, 0, 1))
	s := samplesOf(t, p)
	const n = 200_000
	start := time.Now()
	repeat(t, p, frame(t, syn), n)
	takes := time.Since(start)
	read, lost := drain(t, s)
	if read+lost != n {
		t.Errorf("%d packets: %d samples read, %d lost", n, read, lost)
	}
	if most := uint64(runtime.NumCPU()*101) + uint64(takes/(100*time.Microsecond)); read < 100 || read > most {
		t.Errorf("%d samples in %v, want 100 to %d", read, takes, most)
	}
}

// TestSamplesUnread fills the ring while no program reads. A reader that starts later must get only new samples.
func TestSamplesUnread(t *testing.T) {
	p := load(t, acting(1, 0, 1))
	early := samplesOf(t, p)
	b := frame(t, syn)
	held, sent := uint64(0), uint64(0)
	for before := uint64(1); held != before; { // 10,000 packets take long enough for another sample to be due
		before = held
		repeat(t, p, b, 10_000)
		sent += 10_000
		held = sent - lostOf(t, early)
	}
	if held < 1000 || held > 256<<10/(8+156) {
		t.Errorf("the ring held %d samples", held)
	}
	late := samplesOf(t, p)
	if read, lost := drain(t, late); read+lost != 0 {
		t.Errorf("who comes late reads %d samples, and %d are lost", read, lost)
	}
	through(t, p, b)
	if read, lost := drain(t, late); read != 1 || lost != 0 {
		t.Errorf("%d samples read of the next packet, %d lost", read, lost)
	}
}

// TestNoSamples checks that there is no ring if no rule takes samples.
func TestNoSamples(t *testing.T) {
	for name, im := range map[string]*image.Image{"plain": always(ruleSlot, 1), "slip": acting(truncate, 2, 0)} {
		p := load(t, im)
		if _, err := p.Samples(); !errors.Is(err, datapath.ErrNoSamples) {
			t.Errorf("%s: %v", name, err)
		}
		for _, m := range []string{image.Samples, image.Samplers} {
			if p.Map(m) != nil {
				t.Errorf("%s: there is a map %s", name, m)
			}
		}
	}
	if load(t, always(ruleSlot, 1)).Map(image.Actions) != nil {
		t.Errorf("there is a map of actions where no rule has one")
	}
}
