package rig

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

func TestFigure(t *testing.T) {
	// In a second, a million packets arrived; the receive thread was busy for a tenth of it.
	m := lab.Measurement{Time: time.Second, Packets: 1e6, PPS: 1e6, Ran: 0.1}
	for c, want := range map[Cores]float64{twoCores: 1e6, OneCore: 1e7} {
		if got := c.figure(m); got != want {
			t.Errorf("cores %d: %.0f packets per second, want %.0f", c, got, want)
		}
	}
	if nothing := (lab.Measurement{Time: time.Second}); OneCore.figure(nothing) != 0 {
		t.Errorf("%v packets per second of none", OneCore.figure(nothing))
	}
	if !twoCores.starved(m) || OneCore.starved(m) {
		t.Error("a receiver that is idle is starved when the source has a core of its own, and only then")
	}
}

func TestOtherCoresAreMeasuredAnew(t *testing.T) {
	two := rows()
	one := two.On(OneCore)
	if one.empty == two.empty || one.touch == two.touch || one.Rows[0] != one.empty || one.Rows[1] != one.touch {
		t.Error("the other table's limits are not rows of its own")
	}
	if n := len(one.Rows[2].Rounds); n != 0 {
		t.Errorf("the other table begins with %d rounds", n)
	}
}
