// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"math/rand/v2"
	"testing"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestDecoded compares formulas with the code that they model, for random frames that match the rules: the formulas of fields and checks with
// packet.Decode, and the formula of the decision with Eval.
func TestDecoded(t *testing.T) {
	r, _ := subject.Seeded(t)
	compared := 0
	for policy := range 3 {
		text, _, w := subject.RandomPolicy(t, rand.New(rand.NewPCG(7, uint64(policy))), 8)
		s := subject.Lower(t, text)
		proof, err := Compile(s.Program, false)
		if err != nil {
			t.Fatal(err)
		}
		hints := subject.RuleHints(s, w)
		meanings := map[kind]*meaning{}
		for range 1000 {
			frame := packet.Random(r, hints[r.IntN(len(hints))])
			k, ok := kindOf(frame)
			if !ok {
				continue
			}
			if meanings[k] == nil {
				c := smt.New()
				world := *proof.world
				world.decoded = decode(c, newFrame(c, k.known(c)), k)
				meanings[k] = mean(world.decoded, &world)
			}
			if sameAsDecode(t, s.Program, proof, meanings[k], frame) {
				compared++
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d frames were compared", compared)
	}
}

// sameAsDecode compares the formulas with packet.Decode and Eval for a frame. It reports false for fragments.
func sameAsDecode(t *testing.T, p *ir.Program, proof *Subject, m *meaning, frame []byte) bool {
	t.Helper()
	pkt := packet.Decode(frame)
	values := proof.modelOf(m.kind, frame)
	values.Vars["dns"] = uint64(pkt.Value[packet.DNS])
	values.Vars["mss"] = uint64(pkt.Value[packet.MSS])
	values.Vars["options_mss"] = flag(!pkt.Failed.Has(packet.SYNNoMSS))
	values.Vars["options_fit"] = flag(!pkt.Failed.Has(packet.TCPOptions))
	if values.Eval(m.usual) == 0 {
		return false
	}
	for check := range packet.NumChecks {
		if got, want := values.Eval(m.failed[check]) == 1, pkt.Failed.Has(check); got != want && check != packet.OwnSource {
			t.Fatalf("%x: check %s fails %t, the formula says %t", frame, check, want, got)
		}
	}
	if pkt.Kind == packet.IP {
		for f := range packet.NumFields {
			if got, want := uint32(values.Eval(m.field[f])), pkt.Value[f]; got != want {
				t.Fatalf("%x: %s is %d, the formula says %d", frame, f, want, got)
			}
		}
	}
	verdict, reason := p.Eval(&pkt, ir.World{})
	want := subject.SlotOf(reason)<<8 | uint32(verdict)
	if got := uint32(values.Eval(m.decision)); got != want && !destinationOpen(p, m, values) {
		t.Fatalf("%x: Eval says slot %d, verdict %s, the formula slot %d, verdict %d", frame, want>>8, verdict, got>>8, got&0xff)
	}
	return true
}

// destinationOpen reports whether a rule of the program tests a property that is a free variable in this model.
func destinationOpen(p *ir.Program, _ *meaning, _ *smt.Model) bool {
	for i := range p.Rules {
		if len(p.Rules[i].Dst) > 0 || p.Rules[i].Conditional() {
			return true
		}
	}
	return false
}
