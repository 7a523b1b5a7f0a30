// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"testing"
)

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		figures  Samples
		median   float64
		spread   float64
		unsteady bool
	}{
		{nil, math.NaN(), 0, false},
		{Samples{7}, 7, 0, false},
		{Samples{3, 1, 2}, 2, 2, true},
		{Samples{4, 1, 3, 2}, 2.5, 3, true},
		{Samples{100, 101, 99, 100, 102}, 100, 3, false},
		{Samples{100, 100, 100, 100, 116}, 100, 16, true},
	} {
		same := c.figures.Median() == c.median || math.IsNaN(c.figures.Median()) && math.IsNaN(c.median)
		if !same || c.figures.spread() != c.spread || c.figures.Unsteady() != c.unsteady {
			t.Errorf("%v: median %v, spread %v, unsteady %v; want %v, %v, %v", c.figures,
				c.figures.Median(), c.figures.spread(), c.figures.Unsteady(), c.median, c.spread, c.unsteady)
		}
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		bar  *Bar
		want string
	}{
		{AtLeast("", 0.9, 0.9), ">= 0.90 met"},
		{AtLeast("", 0.899, 0.9), ">= 0.90 MISSED"},
		{AtMost("", 1, 1), "<= 1.00 met"},
		{AtMost("", 128.1, 128), "<= 128 MISSED"},
	} {
		if got := c.bar.String(); got != c.want || c.bar.Met != (c.want[len(c.want)-3:] == "met") {
			t.Errorf("%+v: %q, want %q", c.bar, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{CountText(0), "0"}, {CountText(999), "999"}, {CountText(1000), "1,000"}, {CountText(10_000_000), "10,000,000"},
		{SecondsText(0.00061), "0.00061"}, {SecondsText(0.0124), "0.0124"}, {SecondsText(0.944), "0.944"},
		{SecondsText(1.23456), "1.23"}, {SecondsText(49.12), "49.1"}, {SecondsText(732.4), "732"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
