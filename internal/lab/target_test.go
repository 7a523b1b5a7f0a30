// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

func TestRequestRate(t *testing.T) {
	for text, want := range map[string]float64{
		"": 0, "1000/s": 1000, "1000": 1000, "90/m": 1.5, "1.5k/s": 1500, "/s": -1, "x": -1, "0/s": -1, "-5/s": -1, "5/h": -1,
	} {
		got, err := requestRate(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
