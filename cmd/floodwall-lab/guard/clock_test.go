// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestFirstTick makes a program read the coarse time for the first time in a tick whose number ends in zeros. Its remembered time ends in zeros, too,
// before its first use. A client with a cookie of the tick before must be let in.
func TestFirstTick(t *testing.T) {
	testutil.RequireRoot(t)
	const (
		tick  = 4_000_000  // of the machine, in nanoseconds
		first = tick << 20 // TICK_BITS of bpf/clock.h
	)
	inLab(t, func(g *guard) error {
		return policy(synPolicy)(context.Background(), g, func(p *ebpf.Program) error {
			forgetTick(t, p)
			m, err := OpenProgram(p)
			if err != nil {
				return err
			}
			defer m.Close()
			send := func(now uint64, line string) Result {
				m.Now = func() uint64 { return now }
				r, err := run(m, line)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			answer := send(first-tick, bare)
			if answer.Action != rig.XDPTX {
				t.Fatalf("XDP action %d, want an answer", answer.Action)
			}
			for _, step := range []struct {
				now  uint64
				want uint32
			}{{first, rig.XDPPass}, {first * 2, rig.XDPDrop}} { // the second cookie is too old
				m.Forget()
				if got := send(step.now, handshake(answer.Frame)).Action; got != step.want {
					t.Errorf("%d ns after the start: XDP action %d, want %d", step.now, got, step.want)
				}
			}
			return nil
		})
	})
}

// forgetTick resets the remembered time of a program to its value before the first use. The kernel of the lab may have sent packets.
func forgetTick(t *testing.T, p *ebpf.Program) {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if info, err := m.Info(); err != nil {
			t.Fatal(err)
		} else if info.Name == image.Tick {
			if err := m.Put(uint32(0), make([]byte, info.ValueSize)); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("the program has no map %s", image.Tick)
}
