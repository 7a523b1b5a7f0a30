// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

var plain = Flow{From: MustAddrs("198.18.0.0/15"), To: MustAddrs("10.0.0.2"), SPort: AnyPort, DPort: Port(9)}

// received returns the numbers of frames that d's queue accepted and refused since the device was made.
func received(t testing.TB, d *Device) (taken, refused uint64) {
	t.Helper()
	taken, err := d.Received()
	if err != nil {
		t.Fatal(err)
	}
	if refused, err = d.Refused(); err != nil {
		t.Fatal(err)
	}
	return taken, refused
}

// TestCount sends a number of packets at rates of all three kinds: without a rate, in bursts, evenly spaced.
func TestCount(t *testing.T) {
	p := newPair(t)
	p.sink(t, p.b, DropAll)
	var total uint64
	for _, tt := range []struct {
		rate  float64
		count uint64
		burst int
	}{
		{0, 1, 0}, {0, 64, 0}, {0, 1000, 0}, {0, 500_001, 0}, {5000, 1, 0}, {50_000, 777, 0}, {150_000, 10_001, 0}, {1e6, 100_003, 0},
		{150_000, 10_001, 64},
	} {
		t.Run(fmt.Sprintf("%d at %g per second, %d at once", tt.count, tt.rate, tt.burst), func(t *testing.T) {
			s := p.source(t, SourceOptions{Flows: []Flow{plain}, Rate: tt.rate, Count: tt.count, Burst: tt.burst})
			for run := uint64(1); run <= 2; run++ {
				if err := s.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				total += tt.count
				if got := s.Sent(); got != run*tt.count {
					t.Fatalf("sent %d after run %d, want %d", got, run, run*tt.count)
				}
			}
			await(t, "every packet is received or refused", func() bool {
				taken, refused := received(t, p.b)
				return taken+refused == total
			})
		})
	}
}

// TestCounters compares the device's counters with known numbers of packets, for each way to receive.
func TestCounters(t *testing.T) {
	p := newPair(t)
	const n = 2 * queued
	for _, program := range []string{"", DropAll, PassAll, CountDrop, CountPass, TxAll, ""} {
		t.Run("program "+program, func(t *testing.T) {
			var s *Sink
			if program != "" {
				s = p.sink(t, p.b, program)
				defer s.Close()
			}
			before, _ := received(t, p.b)
			for sent := uint64(queued); sent <= n; sent += queued {
				p.send(t, SourceOptions{Flows: []Flow{plain}, Rate: gentle, Count: queued})
				await(t, "all packets are received", func() bool {
					taken, _ := received(t, p.b)
					return taken == before+sent
				})
			}
			if program != CountDrop && program != CountPass {
				return
			}
			if packets, size, err := s.Counted(); err != nil || packets != n || size != n*60 {
				t.Errorf("counted %d packets, %d bytes, %v; want %d, %d", packets, size, err, n, n*60)
			}
		})
	}
}

// TestRecycledPages sends frames to a receiver that writes to them. It uses so few calls that pages are reused. It sends more until a thousand pages
// were reused: on a busy machine the receiver does not run all the time, and its queue holds few frames.
func TestRecycledPages(t *testing.T) {
	p := newPair(t)
	p.sink(t, p.b, TxAll)
	back := p.sink(t, p.a, CaptureDrop)
	var n uint64
	for n < 1000 && t.Context().Err() == nil {
		p.send(t, SourceOptions{Flows: []Flow{plain}, Rate: SmoothRate, Count: 1500})
		var err error
		if n, _, err = back.Counted(); err != nil {
			t.Fatal(err)
		}
	}
	for i, frame := range frames(t, back, int(n)) {
		if to, from := net.HardwareAddr(frame[:6]), net.HardwareAddr(frame[6:12]); !bytes.Equal(to, p.a.MAC) ||
			!bytes.Equal(from, p.b.MAC) {
			t.Fatalf("frame %d came back from %s to %s; want from %s to %s", i, from, to, p.b.MAC, p.a.MAC)
		}
	}
}

// TestEachOnce checks that Each and Listed send every address, once per round.
func TestEachOnce(t *testing.T) {
	var list []netip.Addr
	for a := netip.MustParseAddr("2001:db8::ffff:0"); len(list) < queued; a = a.Next() {
		list = append(list, a)
	}
	p := newPair(t)
	sink := p.sink(t, p.b, CaptureDrop)
	for _, tt := range []struct {
		name  string
		from  Addresses
		to    string
		round int
		at    int // offset of the source address
	}{
		{"each", Each(netip.MustParsePrefix("192.0.2.128/25")), "10.0.0.2", 128, 26},
		{"each, v6", Each(netip.MustParsePrefix("2001:db8::1:0:0:0/121")), "fd00::2", 128, 22},
		{"listed", Listed(list), "fd00::2", queued, 22},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flow := Flow{From: tt.from, To: MustAddrs(tt.to), SPort: Port(1), DPort: Port(9)}
			s := p.source(t, SourceOptions{Flows: []Flow{flow}, Rate: gentle, Count: uint64(tt.round / 2)})
			seen := make(map[netip.Addr]int)
			for _, frame := range p.runs(t, s, sink, 4) {
				a, _ := netip.AddrFromSlice(frame[tt.at:][:tt.from.first().BitLen()/8])
				seen[a]++
			}
			if len(seen) != tt.round {
				t.Errorf("%d addresses, want %d", len(seen), tt.round)
			}
			for a, n := range seen {
				if n != 2 || (tt.name == "listed" && a.Less(list[0])) {
					t.Fatalf("address %s came %d times, want 2", a, n)
				}
			}
		})
	}
}

func TestSeed(t *testing.T) {
	p := newPair(t)
	sink := p.sink(t, p.b, CaptureDrop)
	capture := func(seed uint64) []byte {
		p.send(t, SourceOptions{Flows: []Flow{plain}, Rate: gentle, Count: 50, Seed: seed})
		return bytes.Join(frames(t, sink, 50), nil)
	}
	first := capture(1)
	if !bytes.Equal(first, capture(1)) {
		t.Error("the same seed gives different packets")
	}
	if bytes.Equal(first, capture(2)) {
		t.Error("different seeds give the same packets")
	}
}

// TestSpread checks that random addresses and ports fill their ranges evenly: each of 16 parts of each range gets a
// sixteenth of 8192 packets, within six standard deviations.
func TestSpread(t *testing.T) {
	p := newPair(t)
	sink := p.sink(t, p.b, CaptureDrop)
	const n, parts, low, high = 3200, 16, 200 - 83, 200 + 83
	flow := Flow{From: MustAddrs("64.0.0.0/4"), To: MustAddrs("10.0.0.2"), SPort: Ports{0, 65535}, DPort: Port(9)}
	all := p.exchange(t, sink, flow, n)
	var high4, low4, ports [parts]int
	for _, frame := range all {
		high4[frame[26]&15]++
		low4[frame[29]&15]++
		ports[binary.BigEndian.Uint16(frame[34:])>>12]++
	}
	for name, count := range map[string][parts]int{"network": high4, "host": low4, "port": ports} {
		for i, c := range count {
			if c < low || c > high {
				t.Errorf("%s part %d: %d packets, want %d to %d; all: %v", name, i, c, low, high, count)
				break
			}
		}
	}
}

func TestMix(t *testing.T) {
	p := newPair(t)
	sink := p.sink(t, p.b, CaptureDrop)
	flows := []Flow{
		{From: MustAddrs("198.18.0.0/15"), To: MustAddrs("10.0.0.2"), SPort: AnyPort, DPort: Port(9), Size: 1200, Weight: 3},
		{From: MustAddrs("2001:db8::/33"), To: MustAddrs("fd00::2"), SPort: AnyPort, DPort: Port(80), Proto: TCP, Flags: SYN},
		{From: MustAddrs("198.18.0.0/15"), To: MustAddrs("10.0.0.2"), SPort: Port(5), DPort: Port(7), Payload: []byte("odd")},
	}
	const n = 2000
	s := p.source(t, SourceOptions{Flows: flows, Rate: gentle, Count: queued})
	got := make(map[string]uint64)
	for i, frame := range p.runs(t, s, sink, n/queued) {
		line, err := describe(frame, &Flow{})
		if err != nil {
			t.Fatalf("frame %d: %v\n%.200x", i, err, frame)
		}
		switch {
		case len(frame) == 1200:
			got["large"]++
		case bytes.HasSuffix(frame, []byte("odd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")):
			got["odd"]++
		case len(frame) == 74:
			got["syn"]++
		default:
			t.Fatalf("unknown frame: %s\n%.200x", line, frame)
		}
	}
	by := s.SentBy()
	if by[0] != got["large"] || by[1] != got["syn"] || by[2] != got["odd"] {
		t.Errorf("sent %d, got %v", by, got)
	}
	// 3:1:1, within six standard deviations.
	if by[0] < 1200-132 || by[0] > 1200+132 || by[1] < 400-108 || by[1] > 400+108 {
		t.Errorf("sent %d, want about 1200, 400, 400", by)
	}
}

func TestSourceStops(t *testing.T) {
	p := newPair(t)
	p.sink(t, p.b, DropAll)
	for _, o := range []SourceOptions{{}, {Rate: 10_000}, {Rate: 200_000}, {Apart: true}, {Rate: 200_000, Apart: true}} {
		t.Run(fmt.Sprintf("%g per second, apart %t", o.Rate, o.Apart), func(t *testing.T) {
			o.Flows = []Flow{plain}
			s := p.source(t, o)
			unhurried(t, func() error {
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if err := s.Run(ctx); err != nil {
					t.Error(err)
				}
				took := time.Since(begin)
				if took < 100*time.Millisecond {
					t.Errorf("stopped after %s, want 100 ms", took)
				}
				if s.Sent() == 0 {
					return errors.New("sent nothing")
				}
				return below("stopped after", took, 2*time.Second)
			})
		})
	}
}

func TestMeasure(t *testing.T) {
	p := newPair(t)
	p.sink(t, p.b, DropAll)
	s := p.source(t, SourceOptions{Flows: []Flow{plain}, Rate: 10_000})
	unhurried(t, func() error {
		m, err := Measure(t.Context(), s, p.b, 300*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if rate := float64(m.Packets) / m.Time.Seconds(); rate != m.PPS || m.Time < 300*time.Millisecond {
			t.Errorf("%+v: want %g packets a second", m, rate)
		}
		if m.Packets == 0 || m.Sent == 0 || m.Packets > 2*m.Sent || m.Ran <= 0 || m.Ran > 1 {
			return fmt.Errorf("got %+v", m)
		}
		return nil
	})
}

// TestApart runs a source in a separate process. The source must send at its rate, except for packets that were late at first, and must not exist
// after its run.
func TestApart(t *testing.T) {
	p := newPair(t)
	p.sink(t, p.b, DropAll)
	const rate, lasts = 100_000, time.Second
	s := p.source(t, SourceOptions{Flows: []Flow{plain}, Rate: rate, Duration: lasts, Apart: true})
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := s.Sent()
	if took := s.Took(); sent == 0 || float64(sent) > rate*(took+maxLag).Seconds() {
		t.Errorf("%d packets in %s, want at most %d per second", sent, took, rate)
	}
	time.Sleep(20 * time.Millisecond)
	if more := s.Sent() - sent; more > 0 {
		t.Errorf("%d packets after the end", more)
	}
}

// TestBurst reads at intervals how many packets a source has sent. As bursts are short, that is often a number of whole bursts. A source without
// bursts sends dozens of packets at a time, and would show such a number once or twice.
func TestBurst(t *testing.T) {
	p := newPair(t)
	p.sink(t, p.b, DropAll)
	const burst, looks = 2000, 50 // one every 20 ms
	s := p.source(t, SourceOptions{Flows: []Flow{plain}, Rate: SmoothRate, Burst: burst})
	unhurried(t, func() error {
		before := s.Sent()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		whole := 0
		for range looks {
			time.Sleep(3 * time.Millisecond)
			if (s.Sent()-before)%burst == 0 {
				whole++
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if s.Sent() == before || whole < looks/5 {
			return fmt.Errorf("%d packets, %d of %d looks saw whole bursts of %d", s.Sent()-before, whole, looks, burst)
		}
		return nil
	})
}

// BenchmarkReflect measures XDP_TX: the frames come back to CPU 0, where the source is.
func BenchmarkReflect(b *testing.B) {
	p := newPair(b)
	p.sink(b, p.b, TxAll)
	p.sink(b, p.a, DropAll)
	s := p.source(b, SourceOptions{Flows: []Flow{plain}, Urgent: true})
	var out, back Measurement
	for b.Loop() {
		before, _ := received(b, p.a)
		var err error
		if out, err = Measure(b.Context(), s, p.b, 500*time.Millisecond); err != nil {
			b.Fatal(err)
		}
		back.Packets, _ = received(b, p.a)
		back.Packets -= before
	}
	b.ReportMetric(out.PPS/1e6, "Mpps")
	b.ReportMetric(float64(out.Cost()), "receiver-ns/packet")
	b.ReportMetric(float64(back.Packets)/(out.Time+warmUp).Seconds()/1e6, "back-Mpps")
}

// BenchmarkSource measures the full speed of the generator on CPU 0 into an empty XDP_DROP on CPU 1, and the rate errors of paced sources.
func BenchmarkSource(b *testing.B) {
	p := newPair(b)
	p.sink(b, p.b, DropAll)
	for _, rate := range []float64{0, 1e4, 1e5, 1e6, 3e6} {
		b.Run(fmt.Sprintf("rate=%g", rate), func(b *testing.B) {
			s := p.source(b, SourceOptions{Flows: []Flow{plain}, Rate: rate, Urgent: true})
			var m Measurement
			for b.Loop() {
				var err error
				if m, err = Measure(b.Context(), s, p.b, 500*time.Millisecond); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(m.PPS/1e6, "Mpps")
			b.ReportMetric(float64(m.Sent)/m.Time.Seconds()/1e6, "sent-Mpps")
			b.ReportMetric(float64(m.Cost()), "receiver-ns/packet")
			b.ReportMetric(m.Ran, "ran")
			b.ReportMetric(m.Waited, "waited")
			if rate > 0 {
				b.ReportMetric(100*(float64(m.Sent)/m.Time.Seconds()/rate-1), "off-%")
			}
		})
	}
}
