// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"context"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestTraffic takes samples of all packets: packets that the entry passes or drops, a packet that general() decides, a frame that is not IP, and
// segments that a protection handles. Each sample must have the frame with its verdict and its reason. The counters and verdicts must be those of a
// program without samples.
func TestTraffic(t *testing.T) {
	testutil.RequireRoot(t)
	const n, oneIn = 4000, 10
	text := `
default: drop
rules:
  - {name: bad, proto: udp, port: 60, then: drop}
  - {name: text, proto: udp, port: 61, payload: {contains: "evil"}, then: drop}
  - {name: pings, icmp: echo-request, then: pass, sample: 1/2}
services: [{name: web, port: tcp/80, syn: {mode: host, when: always}}]
daemon: {sample: 1/10}
`
	s := subject.Lower(t, text)
	s.Insert(t, "local", "192.0.2.1/32")
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Load(t, x)
	samples, err := p.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	defer samples.Close()
	for _, test := range []struct {
		name, line string
		slot       uint32
		verdict    uint8
		action     uint32
	}{
		{"entry drops", "udp 198.51.100.7:1234 > 192.0.2.1:60 len=600", image.SlotRules, 1, xdpDrop},
		{"general drops", `udp 198.51.100.7:1234 > 192.0.2.1:61 payload="evil"`, image.SlotRules + 1, 1, xdpDrop},
		{"a rule with samples of its own", "icmp 198.51.100.7 > 192.0.2.1 echo-request", image.SlotRules + 2, 0, xdpPass},
		{"default", "udp [2001:db8::1]:1234 > [2001:db8::2]:7", image.SlotDefault, 1, xdpDrop},
		{"a segment to a protection", "tcp 198.51.100.7:1234 > 192.0.2.1:80 S", image.SlotRules + 3, image.Protected, xdpTX},
	} {
		t.Run(test.name, func(t *testing.T) {
			frame := subject.FramesOf(t, test.line)[0].Frame
			before, lostBefore := countersOf(t, p)[test.slot], lost(t, samples)
			for range n {
				action, err := p.Native().Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+128), Repeat: 1})
				if err != nil || action != test.action {
					t.Fatalf("action %d, want %d: %v", action, test.action, err)
				}
			}
			if after := countersOf(t, p)[test.slot]; after.Packets-before.Packets != n || after.Bytes-before.Bytes != uint64(n*len(frame)) {
				t.Errorf("counted %v after %v, want %d packets", after, before, n)
			}
			read := trafficSamples(t, samples, func(got datapath.Sample) {
				if got.Slot != test.slot || got.Code != test.verdict || got.Length != len(frame) || string(got.Frame) != string(frame[:min(len(frame), datapath.SampleBytes)]) {
					t.Errorf("%+v, want slot %d, verdict %d of\n%x", got, test.slot, test.verdict, frame)
				}
			})
			near(t, test.line, read+int(lost(t, samples)-lostBefore), n/oneIn)
		})
	}
}

// trafficSamples calls fn for each available sample.
func trafficSamples(t *testing.T, s *datapath.Samples, fn func(datapath.Sample)) (n int) {
	t.Helper()
	for empty := 0; empty < 2; {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		sample, err := s.Read(ctx)
		late := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			n++
			fn(sample)
		case late:
			empty++
		default:
			t.Fatal(err)
		}
	}
	return n
}

// countersOf reads the counters of a program.
func countersOf(t *testing.T, p *datapath.Program) []image.Counter {
	t.Helper()
	list, err := p.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestTrafficSpread takes samples from senders that repeat a series of packets. The length of the series is a power of two, and one packet in that
// number is sampled. Every packet of the series must be sampled sometimes.
func TestTrafficSpread(t *testing.T) {
	testutil.RequireRoot(t)
	defer testutil.OnOneCPU(t)() // each CPU has its own counters, by which packets are sampled
	s := subject.Lower(t, "default: drop\ndaemon: {sample: 1/16}\n")
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := s.Load(t, x)
	samples, err := p.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	defer samples.Close()
	const period = 16
	seen := map[byte]int{}
	for range 8 { // few at a time, within the burst of the rate
		for i := range 64 * period {
			frame := subject.FramesOf(t, "udp 198.51.100.7:1234 > 192.0.2.1:60 len=60")[0].Frame
			frame[29] = byte(i % period) // of the source
			if _, err := p.Native().Run(&ebpf.RunOptions{Data: frame, Repeat: 1}); err != nil {
				t.Fatal(err)
			}
		}
		trafficSamples(t, samples, func(got datapath.Sample) { seen[got.Frame[29]]++ })
	}
	for i := range byte(period) {
		if seen[i] < 12 || seen[i] > 64 { // 32 on average
			t.Errorf("packet %d of each %d: %d samples; all: %v", i, period, seen[i], seen)
		}
	}
}

// TestTrafficAdapts takes samples of incoming and outgoing packets with adaptive shares. The program itself must lower a share that yields far more
// samples than the rate allowed for a CPU. The share in each sample is the number of packets for which the sample stands.
func TestTrafficAdapts(t *testing.T) {
	testutil.RequireRoot(t)
	s := subject.Lower(t, "default: drop\nservices: [{name: game, port: udp/60}]\ndetect: {baseline: learn}\n")
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	if !x.Egress {
		t.Error("there is no program for what leaves")
	}
	p := s.Load(t, x)
	samples, err := p.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	defer samples.Close()
	for name, test := range map[string]struct {
		prog *ebpf.Program
		line string
		of   func(*datapath.Shares) *uint32
		flag uint8
	}{
		"arrives": {p.Native(), "udp 198.51.100.7:1234 > 192.0.2.1:60 len=600", func(s *datapath.Shares) *uint32 { return &s.Arriving }, 0},
		"leaves":  {p.Egress(), "udp 192.0.2.1:60 > 198.51.100.7:1234 len=600", func(s *datapath.Shares) *uint32 { return &s.Leaving }, image.Leaves},
	} {
		t.Run(name, func(t *testing.T) {
			frame := subject.FramesOf(t, test.line)[0].Frame
			shares := datapath.Shares{}
			*test.of(&shares) = image.Share(1)
			if err := samples.SetShares(shares); err != nil {
				t.Fatal(err)
			}
			const n = 1_000_000
			stands := 0.0
			done := make(chan error)
			go func() {
				_, err := test.prog.Run(&ebpf.RunOptions{Data: frame, Repeat: n})
				done <- err
			}()
			read := trafficSamples(t, samples, func(got datapath.Sample) {
				if got.Code != test.flag || got.Length != len(frame) || string(got.Frame) != string(frame[:datapath.SampleBytes]) {
					t.Errorf("%+v of\n%x", got, frame)
				}
				stands += got.Stands
			})
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			read += trafficSamples(t, samples, func(got datapath.Sample) { stands += got.Stands })
			now, err := samples.Shares()
			if err != nil {
				t.Fatal(err)
			}
			if share := *test.of(&now); share >= image.Share(2) || share == 0 {
				t.Errorf("the share is %d after %d packets as fast as they go", share, n)
			}
			if read < 50 || stands < n/4 || stands > 4*n {
				t.Errorf("%d samples stand for %.0f of %d packets", read, stands, n)
			}
		})
	}
}
