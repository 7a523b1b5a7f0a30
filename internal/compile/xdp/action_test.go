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

// actionPolicy has rules with every action other than the verdict. Rules without actions are between them.
const actionPolicy = `
default: pass
rules:
  - {name: all, dns: {type: [A]}, then: truncate}
  - {name: web, proto: tcp, port: 80, then: drop}
  - {name: some, dns: {type: [TXT]}, then: truncate, slip: 4}
  - {name: seen, proto: tcp, port: 23, then: pass, sample: 1/5}
  - {name: both, dns: {type: [ANY]}, then: truncate, slip: 2, sample: 1/3}
`

// The return values of a program: enum xdp_action of include/uapi/linux/bpf.h.
const (
	xdpDrop = 1
	xdpPass = 2
	xdpTX   = 3
)

// TestActions sends packets to each rule, whose slots are in no order, and counts the actions and samples.
func TestActions(t *testing.T) {
	const n = 4000
	s := subject.Lower(t, actionPolicy)
	testutil.RequireRoot(t)
	slots := []uint32{90, 64, 77, 300, 65}
	for _, form := range []xdpgen.Form{xdpgen.Straight, xdpgen.Tables} {
		x, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: form, Slots: slots})
		if err != nil {
			t.Fatal(err)
		}
		p := s.Load(t, x)
		samples, err := p.Samples()
		if err != nil {
			t.Fatal(err)
		}
		defer samples.Close()
		for _, test := range []struct {
			line     string
			slot     uint32
			actions  map[uint32]int // out of n
			answered bool
			sampled  int
		}{
			{"udp 198.51.100.7:1234 > 192.0.2.1:53 dns=A,www.example", 90, map[uint32]int{xdpTX: n}, true, 0},
			{"tcp 198.51.100.7:1234 > 192.0.2.1:80 S", 64, map[uint32]int{xdpDrop: n}, false, 0},
			{"udp 198.51.100.7:1234 > 192.0.2.1:53 dns=TXT,www.example", 77, map[uint32]int{xdpTX: n / 4, xdpDrop: n - n/4}, true, 0},
			{"tcp 198.51.100.7:1234 > 192.0.2.1:23 S", 300, map[uint32]int{xdpPass: n}, false, n / 5},
			{"udp 198.51.100.7:1234 > 192.0.2.1:53 dns=ANY,www.example", 65, map[uint32]int{xdpTX: n / 2, xdpDrop: n / 2}, true, n / 3},
			{"udp 198.51.100.7:1234 > 192.0.2.1:53 dns=MX,www.example", image.SlotDefault, map[uint32]int{xdpPass: n}, false, 0},
		} {
			frame := subject.FramesOf(t, test.line)[0].Frame
			lostBefore := lost(t, samples)
			actions := map[uint32]int{}
			for range n {
				action, err := p.Native().Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Repeat: 1})
				if err != nil {
					t.Fatal(err)
				}
				actions[action]++
			}
			for action, count := range test.actions {
				near(t, test.line, actions[action], count)
			}
			if len(actions) != len(test.actions) {
				t.Errorf("%s: XDP actions %v, want %v", test.line, actions, test.actions)
			}
			near(t, test.line, int(lost(t, samples)-lostBefore)+drained(t, samples, test.slot), test.sampled)
		}
	}
}

// near checks a number out of 4000 packets. It may differ from the expected number by at most 6 standard deviations, of at most 32 each. If none or
// all are expected, the number must be exact.
func near(t *testing.T, what string, got, want int) {
	t.Helper()
	most := 6 * 32
	if want%4000 == 0 {
		most = 0
	}
	if got < want-most || got > want+most {
		t.Errorf("%s: %d, want %d ± %d", what, got, want, most)
	}
}

func lost(t *testing.T, s *datapath.Samples) uint64 {
	t.Helper()
	n, err := s.Lost()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// drained returns the number of available samples. All must be of one slot. It reads the ring three times before it regards it as empty, because on a
// busy machine the time of one read can pass before the read starts.
func drained(t *testing.T, s *datapath.Samples, slot uint32) (n int) {
	t.Helper()
	for empty := 0; empty < 3; {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond) // for each read, because on a busy machine all reads together take long
		sample, err := s.Read(ctx)
		late := ctx.Err() != nil
		cancel()
		if late && err != nil {
			empty++
			continue
		}
		if err != nil || sample.Slot != slot {
			t.Fatalf("sample of slot %d, %v, want %d", sample.Slot, err, slot)
		}
		n, empty = n+1, 0
	}
	return n
}
