// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Asker is a loaded program that returns its verdict on a frame.
type Asker interface {
	AskAt(datapath.Question) (datapath.Answer, error)
}

// Paths counts the frames that Compare has sent to programs. Entry counts frames about which the generated entry of a program decided. For these,
// Compare also asked general(). General counts frames that the entry left to general().
var Paths struct{ Entry, General atomic.Int64 }

// Compare sends frames to a loaded program, and reports the first few differences from Eval. If the entry decides about a frame, Compare also sends
// it to general(), which must decide the same.
func (s *Subject) Compare(t testing.TB, p Asker, what string, frames []Probe) {
	t.Helper()
	c := &comparison{TB: t, subject: s, program: p, what: what}
	for _, f := range frames {
		if entry := c.ask(s.Answered(f), datapath.Question{Frame: f.Frame}); !entry {
			Paths.General.Add(1)
			continue
		}
		Paths.Entry.Add(1)
		c.ask(s.Answered(f), datapath.Question{Frame: f.Frame, General: true})
	}
}

// CompareHooks compares a loaded program at XDP and at tc, as Compare does.
func (s *Subject) CompareHooks(t testing.TB, p *datapath.Program, what string, frames []Probe) {
	t.Helper()
	s.Compare(t, p, what, frames)
	s.Compare(t, datapath.AtTC{Program: p}, what+" at tc", slices.DeleteFunc(slices.Clone(frames), refusedAtTC))
}

// refusedAtTC reports whether BPF_PROG_TEST_RUN refuses a frame for a program of tc: one that ends before or in its IP header, and one that does not
// fit in a page with its headroom and the kernel's skb_shared_info (bpf_prog_test_run_skb and bpf_test_init of the kernel's net/bpf/test_run.c).
// TestNotLinear of e2e/traffic sends larger ones.
func refusedAtTC(p Probe) bool {
	const ethernet, ipv4, ipv6, most = 14, 20, 40, 4096 - 64 - 320
	least := map[uint16]int{0x0800: ethernet + ipv4, 0x86dd: ethernet + ipv6}[binary.BigEndian.Uint16(p.Frame[12:])]
	return len(p.Frame) < max(least, ethernet+1) || len(p.Frame) > most
}

// comparison has the state of a comparison between a loaded program and Eval.
type comparison struct {
	testing.TB
	subject     *Subject
	program     Asker
	what        string
	differences int
}

// ask sends a question to the program, and compares the answer with want. It reports whether the entry gave the answer.
func (c *comparison) ask(want Probe, q datapath.Question) (entry bool) {
	c.Helper()
	s := c.subject
	got, err := c.program.AskAt(q)
	if err != nil {
		c.Fatalf("%s: %s: %v", c.what, want.Name, err)
	}
	if got.Slot == want.Slot && ir.Verdict(got.Verdict) == want.Verdict {
		return got.Entry
	}
	if c.differences++; c.differences > 3 {
		c.Fatalf("%s: more differences", c.what)
	}
	c.Errorf("%s, entry %t: %s\n%x\n got %s %s\nwant %s %s\nmembers %v\npolicy:\n%s", c.what, got.Entry, want.Name, want.Frame,
		ir.Verdict(got.Verdict), s.ReasonIn(got.Slot), want.Verdict, s.ReasonIn(want.Slot), s.Members, Shortened(s.Policy))
	return got.Entry
}
