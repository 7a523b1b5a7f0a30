// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestNetfilterModel sends random frames through the tables of random policies in the kernel. Each counter must have the value that the table's
// formulas give. So the proof gives chains, expressions and sets the same meaning as the kernel.
func TestNetfilterModel(t *testing.T) {
	requireSolver(t)
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	wire := subject.NewWire(t)
	_, seed := subject.Seeded(t)
	compared := 0
	for i := range testutil.Scaled(30, 600) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		text, _, w := subject.RandomPolicy(t, r, 1+r.IntN(12))
		p := subject.Lower(t, text)
		p.Program.Checks = p.Program.Checks.Without(packet.OwnSource)
		pl, err := plan.Hoist(p.Program, plan.TargetNftables)
		if err != nil || len(pl.At(plan.StageIngress)) < len(p.Program.Rules) || len(p.Program.Limits) > 0 {
			continue // packets would have to get further than ingress
		}
		x, err := nftables.Generate(pl, nftables.Options{Devices: []string{"eth0"}})
		if err != nil {
			t.Fatal(err)
		}
		subject.Nft(t, x.Script, "-f", "-")
		table, err := nftable.ReadWhole(unix.NFPROTO_INET, x.Table)
		if err != nil {
			t.Fatal(err)
		}
		n := &Netfilter{p.Program, newNetWorld(p.Program, x, []string{"eth0"}, []*nftable.Table{table})}
		n.world.stages = make([]int, len(p.Program.Rules))
		compared += sameAsKernel(t, fmt.Sprintf("policy %d", i), n, wire, r, subject.RuleHints(p, w))
		subject.Nft(t, "", "flush", "ruleset")
	}
	t.Logf("%d frames", compared)
	if compared < 200 {
		t.Errorf("only %d frames were compared", compared)
	}
}

// sameAsKernel compares counters for frames of the kinds of the proof. It returns the number of frames sent.
func sameAsKernel(t *testing.T, name string, n *Netfilter, wire *subject.Wire, r *rand.Rand, hints []packet.Hints) (sent int) {
	t.Helper()
	queries := map[kind]*query{}
	want := map[string]uint64{}
	for range 300 {
		frame := packet.Random(r, hints[r.IntN(len(hints))])
		if len(frame) > 1514 {
			continue
		}
		values := netModel(frame)
		for _, k := range netKinds() {
			if !isOfKind(k, frame, values) {
				continue
			}
			if queries[k] == nil {
				q, err := n.query(k, false)
				if err != nil {
					t.Fatal(err)
				}
				queries[k] = q
			}
			q := queries[k]
			if values.Eval(q.meaning.outside) == 1 || !wire.Send(frame) {
				break
			}
			sent++
			for counter, counts := range q.counted {
				if values.Eval(counts) == 1 {
					want[counter]++
				}
			}
			break
		}
	}
	if got := subject.Settled(t, n.world.out.Table, int(subject.Sum(want))); !maps.Equal(got, want) {
		t.Fatalf("%s: the kernel counts %v, the formulas say %v\n%s\n%s", name, got, want, n.Program, n.world.out.Script)
	}
	return sent
}

// netModel returns a model with the bytes of a frame, and with the frame's options where the formulas leave these open.
func netModel(frame []byte) *smt.Model {
	m := modelOf(frame)
	pkt := packet.Decode(frame)
	m.Vars["mss"] = uint64(pkt.Value[packet.MSS])
	m.Vars["options_mss"] = flag(!pkt.Failed.Has(packet.SYNNoMSS))
	m.Vars["options_fit"] = flag(!pkt.Failed.Has(packet.TCPOptions))
	for _, at := range []int{20, 24} {
		if at < len(frame) {
			m.Vars[fmt.Sprintf("low%d", at)] = uint64(frame[at] >> 6)
		}
	}
	return m
}

// isOfKind reports whether a frame has the known bytes of a kind.
func isOfKind(k kind, frame []byte, values *smt.Model) bool {
	for at, t := range whole(smt.New(), k) {
		if at >= len(frame) || values.Eval(t) != uint64(frame[at]) {
			return false
		}
	}
	return true
}
