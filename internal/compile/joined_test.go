// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// joined is a packet that the kernel has joined.
type joined struct {
	frame    []byte
	size     int // of the payload of a segment
	segments [][]byte
}

// randomJoined returns a random stream of TCP segments or a train of datagrams, with addresses and ports of the hints. It fits in a page, which
// BPF_PROG_TEST_RUN demands.
func randomJoined(t *testing.T, r *rand.Rand, h packet.Hints) joined {
	v6 := r.IntN(2) == 0
	address := func() netip.Addr {
		for _, i := range r.Perm(len(h.Addrs)) {
			if a := h.Addrs[i].Addr(); a.Is6() == v6 {
				return a
			}
		}
		if v6 {
			return netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", 1+r.IntN(9)))
		}
		return netip.AddrFrom4([4]byte{198, 51, 100, byte(1 + r.IntN(9))})
	}
	port := func(f packet.Field) int {
		if values := h.Values[f]; len(values) > 0 && r.IntN(3) > 0 {
			return int(uint16(values[r.IntN(len(values))]))
		}
		return 1 + r.IntN(65535)
	}
	proto, flags := "udp", ""
	if r.IntN(3) > 0 {
		proto, flags = "tcp", " ."
	}
	size, headers := 8+r.IntN(400), 60+20
	payload := min(size*(1+r.IntN(30))+1+r.IntN(size), 3500-headers)
	line := fmt.Sprintf("%s %s > %s%s payload=%q", proto, netip.AddrPortFrom(address(), uint16(port(packet.SPort))), netip.AddrPortFrom(address(), uint16(port(packet.DPort))),
		flags, string(make([]byte, payload)))
	spec, err := packet.Parse(line)
	if err != nil {
		t.Fatalf("%s: %v", line[:60], err)
	}
	j := joined{frame: spec.Frame(), size: size}
	j.segments = packet.Part(j.frame, size)
	return j
}

// TestJoined compares joined packets at tc with their segments, for random policies. The verdict and the reason must be those that Eval has for the
// first segment, and the counters must be those of all segments.
func TestJoined(t *testing.T) {
	_, seed := subject.Seeded(t)
	testutil.RequireRoot(t)
	streams := 0
	for i := range testutil.Scaled(12, 500) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		text, dynamic, w := subject.RandomPolicy(t, r, 1+r.IntN(10))
		s := subject.Lower(t, text).Unlimited() // the counted packets would fill the limits of what is essential
		for _, name := range dynamic {
			s.Insert(t, name, w.Members())
		}
		if s.HasLocal() {
			s.Insert(t, "local", w.Members())
		}
		hints := subject.RuleHints(s, w)
		for _, x := range s.Forms(t) {
			p := s.Load(t, x)
			for range 200 {
				j := randomJoined(t, r, hints[r.IntN(len(hints))])
				compareJoined(t, s, p, j)
				streams++
			}
			p.Close()
		}
	}
	t.Logf("%d joined packets", streams)
}

func compareJoined(t *testing.T, s *subject.Subject, p *datapath.Program, j joined) {
	t.Helper()
	want := s.Answered(subject.Probe{Frame: j.segments[0]})
	at, packet := datapath.AtTC{Program: p}, datapath.Question{Frame: j.frame, Segments: len(j.segments), Segment: j.size}
	got, err := at.AskAt(packet)
	if err != nil {
		t.Fatal(err)
	}
	if got.Slot != want.Slot || ir.Verdict(got.Verdict) != want.Verdict {
		t.Fatalf("%d segments of %d bytes: got %s %s, want %s %s: %x\n%s", len(j.segments), j.size, ir.Verdict(got.Verdict), s.ReasonIn(got.Slot),
			want.Verdict, s.ReasonIn(want.Slot), j.frame[:80], s.Policy)
	}
	before := counted(t, p, want.Slot)
	if err := at.Receive(packet); err != nil {
		t.Fatal(err)
	}
	after := counted(t, p, want.Slot)
	bytes := uint64(0)
	for _, segment := range j.segments {
		bytes += uint64(len(segment))
	}
	if n := after.Packets - before.Packets; n != uint64(len(j.segments)) || after.Bytes-before.Bytes != bytes {
		t.Fatalf("%s counts %d packets and %d bytes, want %d and %d", s.ReasonIn(want.Slot), n, after.Bytes-before.Bytes, len(j.segments), bytes)
	}
}

// counted returns the counter of a slot.
func counted(t *testing.T, p *datapath.Program, slot uint32) image.Counter {
	t.Helper()
	list, err := p.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return list[slot]
}
