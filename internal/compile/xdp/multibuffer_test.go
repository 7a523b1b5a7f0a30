// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// largeFrames are larger than a page. The kernel gives them to the program in several buffers.
const largeFrames = `
udp 198.51.100.7:53 > 192.0.2.1:5 len=5000
udp 198.51.100.7:53 > 192.0.2.1:5 len=9000 vlan=10,20
udp 198.51.100.7:53 > 192.0.2.1:5 len=9000 totlen=8000
udp 198.51.100.7:53 > 192.0.2.1:5 len=9000 totlen=9001
udp 198.51.100.7:53 > 192.0.2.1:5 len=9000 udplen=8980
udp 198.51.100.7:53 > 192.0.2.1:5 len=9000 udplen=8981
udp 198.51.100.7:53 > 192.0.2.1:5 len=9000 ipopts=94040000 udplen=8977
tcp 198.51.100.7:1234 > 192.0.2.1:80 S len=9000
tcp 198.51.100.7:1234 > 192.0.2.1:80 P. len=16000 totlen=15000
icmp 198.51.100.7 > 192.0.2.1 len=9000
icmp 198.51.100.7 > 192.0.2.1 len=9000 frag=60000
tcp [2001:db8::7]:1234 > [2001:db8::1]:80 P. len=9000
udp [2001:db8::7]:53 > [2001:db8::1]:5 len=9000 udplen=8961
udp [2001:db8::7]:53 > [2001:db8::1]:5 len=9000 ext=hbh,dst,rh2,frag,ah,dst
udp [2001:db8::7]:53 > [2001:db8::1]:5 len=9000 frag=first
udp [2001:db8::7]:53 > [2001:db8::1]:5 len=9000 frag=60000
udp [2001:db8::7]:53 > [2001:db8::1]:5 len=9000 totlen=9001
icmpv6 2001:db8::7 > 2001:db8::1 len=9000
esp 2001:db8::7 > 2001:db8::1 len=9000
arp
`

// lengthPolicy has rules for different lengths of large frames.
const lengthPolicy = `
default: drop
rules:
  - {name: short, length: 0-4999, then: drop}
  - {name: five, length: 5000, then: pass}
  - {name: eight, length: 8000, then: pass}
  - {name: nine, length: 9000, then: pass}
  - {name: claims, length: 9001, then: pass}
`

// TestMultiBuffer tests frames larger than a page, both complete and truncated.
func TestMultiBuffer(t *testing.T) {
	var frames []subject.Probe
	for _, f := range subject.FramesOf(t, largeFrames) {
		frames = append(frames, f)
		for _, n := range []int{1, 2, 100, 1000} {
			if len(f.Frame) > 5000 {
				frames = append(frames, subject.Probe{Name: fmt.Sprintf("%s, less %d bytes", f.Name, n), Frame: f.Frame[:len(f.Frame)-n]})
			}
		}
	}
	for _, checks := range []string{"off", "standard", subject.AllChecks(), "{profile: off, udp-length: on}", "{profile: off, icmp-large: on}"} {
		t.Run(strings.SplitAfter(checks, ",")[0], func(t *testing.T) {
			t.Parallel()
			subject.Lower(t, "checks: "+checks+lengthPolicy).Agree(t, frames)
		})
	}
}

// TestMultiBufferSplit moves the border between the first buffer and the others to each byte after the headers. The right rule must count the packet,
// with all of its bytes. Before Linux 6.18, a test cannot choose the border.
func TestMultiBufferSplit(t *testing.T) {
	t.Parallel()
	s := subject.Lower(t, "checks: standard"+lengthPolicy)
	x := s.Forms(t)[0]
	testutil.RequireRoot(t)
	p := s.Load(t, x)
	for _, f := range subject.FramesOf(t, largeFrames) {
		want := s.Answered(f)
		for linear := 256; linear < min(4096, len(f.Frame)); linear += testutil.Scaled(797, 397) {
			slot, bytes, err := countSplit(t, p, f.Frame, linear)
			if errors.Is(err, unix.EINVAL) {
				t.Skip("this kernel does not let a test choose the border")
			}
			if err != nil {
				t.Fatal(err)
			}
			if slot != want.Slot || bytes != uint64(len(f.Frame)) {
				t.Fatalf("%s, split at %d: counted in %s with %d bytes, want %s with %d", f.Name, linear,
					s.ReasonIn(slot), bytes, s.ReasonIn(want.Slot), len(f.Frame))
			}
		}
	}
}

// countSplit runs a program on a frame whose first buffer has linear bytes. It returns the slot in which the frame was counted, and the counted
// bytes.
func countSplit(t *testing.T, p *datapath.Program, frame []byte, linear int) (slot uint32, bytes uint64, err error) {
	before, err := p.Counters()
	if err != nil {
		return 0, 0, err
	}
	context := struct{ Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32 }{DataEnd: uint32(linear)}
	_, err = p.Native().Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)), Repeat: 1, Context: context})
	if err != nil {
		return 0, 0, err
	}
	after, err := p.Counters()
	for i := range after {
		if after[i] != before[i] {
			return uint32(i), after[i].Bytes - before[i].Bytes, err
		}
	}
	t.Fatal("nothing was counted")
	return 0, 0, err
}

// TestLinear compares the program for generic mode with Eval. In generic mode, the kernel puts every frame into one buffer.
func TestLinear(t *testing.T) {
	s := subject.Lower(t, "checks: strict"+everyField)
	if s.HasLocal() {
		s.Insert(t, "local", subject.OwnAddresses)
	}
	frames := append(subject.Shapes(t), subject.CutEverywhere(subject.FramesOf(t, cutFrames))...)
	for _, x := range s.Forms(t) {
		testutil.RequireRoot(t)
		linear, err := s.Load(t, x).Linear()
		if err != nil {
			t.Fatal(err)
		}
		s.Compare(t, linearProgram{linear}, "linear, "+string(x.Form), frames)
	}
}

type linearProgram struct{ *ebpf.Program }

func (p linearProgram) AskAt(q datapath.Question) (datapath.Answer, error) {
	return datapath.AskAt(p.Program, subject.QuestionKey, q)
}
