// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

func TestCapacity(t *testing.T) {
	// In a second, a million packets arrived; the receive thread was busy for a tenth of it.
	m := lab.Measurement{Time: time.Second, Packets: 1e6, PPS: 1e6, Ran: 0.1}
	if got := Capacity(m); got != 1e7 {
		t.Errorf("%.0f packets per second, want 10 million", got)
	}
	if nothing := (lab.Measurement{Time: time.Second}); Capacity(nothing) != 0 {
		t.Errorf("%v packets per second of none", Capacity(nothing))
	}
}

func TestOtherCoresAreMeasuredAnew(t *testing.T) {
	two := rows()
	one := two.On(OneCore)
	if one.least == two.least || one.Rows[1] != one.least {
		t.Error("the other table's limit is not a row of its own")
	}
	if n := len(one.Rows[2].Rounds); n != 0 {
		t.Errorf("the other table begins with %d rounds", n)
	}
}
