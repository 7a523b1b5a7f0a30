// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strconv"
)

// Bar is a goal for a figure of Floodwall on the measured machine.
type Bar struct {
	Name  string  `json:"name"` // of the result and the figure
	Value float64 `json:"value"`
	Bound float64 `json:"bound"`
	Most  bool    `json:"most,omitempty"` // the bound is a maximum; otherwise a minimum
	Met   bool    `json:"met"`
}

// AtLeast returns a bar that a measured value must reach. The name consists of the names of the result and the figure.
func AtLeast(name string, value, bound float64) *Bar {
	return &Bar{Name: name, Value: value, Bound: bound, Met: value >= bound}
}

// AtMost returns a bar that a measured value must not exceed. The name consists of the names of the result and the figure.
func AtMost(name string, value, bound float64) *Bar {
	return &Bar{Name: name, Value: value, Bound: bound, Most: true, Met: value <= bound}
}

// String returns the bound and whether it is met: ">= 0.90 met".
func (b *Bar) String() string {
	relation, state := ">=", "MISSED"
	if b.Most {
		relation = "<="
	}
	if b.Met {
		state = "met"
	}
	return fmt.Sprintf("%s %s %s", relation, boundText(b.Bound), state)
}

func boundText(v float64) string {
	if v == math.Trunc(v) && v >= 10 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	if v > 0.99 && v < 1 {
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
