// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// TestOffenceNamesLimit sends packets that exceed the first or the second of two limits with bans. The program must report the exceeded limit,
// because the limit determines the set to which the sender is added, and the duration.
func TestOffenceNamesLimit(t *testing.T) {
	ban := func(l ir.Limit) ir.Limit {
		l.Ban = &ir.Ban{Set: 0, For: time.Hour, Forgeable: true}
		return l
	}
	wide, narrow := ban(perHost(1_000_000, time.Second, 1_000_000)), ban(perHost(1, day, 5))
	program := &ir.Program{
		Sets:   []ir.Set{{Name: "bans", Dynamic: &ir.Dynamic{}, Max: 10}},
		Limits: []ir.Limit{wide, narrow, narrow, wide},
	}
	for i := range 2 {
		program.Rules = append(program.Rules, ir.Rule{Name: "pushy", Verdict: ir.Drop, Over: []int{2 * i, 2*i + 1},
			Match: []ir.Match{{Field: packet.DPort, Values: []ir.Range{{First: limitPort(i), Last: limitPort(i)}}}}})
	}
	l := loadLimited(t, program)
	ring, err := ringbuf.NewReader(l.Map(image.Offences))
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	for i, want := range []uint32{1, 2} {
		frame := limitFrame(t, i, "10.1.2.3", "192.0.2.1", 60)
		for range 20 {
			if _, _, err := l.Native().Test(frame); err != nil {
				t.Fatal(err)
			}
		}
		reported := 0
		for {
			ring.SetDeadline(time.Now())
			r, err := ring.Read()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			reported++
			if got := binary.NativeEndian.Uint32(r.RawSample); got != want {
				t.Errorf("rule %d: an offence against limit %d is reported, want %d", i, got, want)
			}
		}
		if reported == 0 {
			t.Errorf("rule %d: none of 15 offences is reported", i)
		}
	}
}
