package bench

import (
	"math"
	"testing"
)

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		figures  series
		median   float64
		spread   float64
		unsteady bool
	}{
		{nil, math.NaN(), 0, false},
		{series{7}, 7, 0, false},
		{series{3, 1, 2}, 2, 2, true},
		{series{4, 1, 3, 2}, 2.5, 3, true},
		{series{100, 101, 99, 100, 102}, 100, 3, false},
		{series{100, 100, 100, 100, 116}, 100, 16, true},
	} {
		same := c.figures.median() == c.median || math.IsNaN(c.figures.median()) && math.IsNaN(c.median)
		if !same || c.figures.spread() != c.spread || c.figures.unsteady() != c.unsteady {
			t.Errorf("%v: median %v, spread %v, unsteady %v; want %v, %v, %v", c.figures,
				c.figures.median(), c.figures.spread(), c.figures.unsteady(), c.median, c.spread, c.unsteady)
		}
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		bar  *Bar
		want string
	}{
		{atLeast("", 0.9, 0.9), ">= 0.90 met"},
		{atLeast("", 0.899, 0.9), ">= 0.90 MISSED"},
		{atMost("", 1, 1), "<= 1.00 met"},
		{atMost("", 128.1, 128), "<= 128 MISSED"},
	} {
		if got := c.bar.String(); got != c.want || c.bar.Met != (c.want[len(c.want)-3:] == "met") {
			t.Errorf("%+v: %q, want %q", c.bar, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{countText(0), "0"}, {countText(999), "999"}, {countText(1000), "1,000"}, {countText(10_000_000), "10,000,000"},
		{secondsText(0.00061), "0.00061"}, {secondsText(0.0124), "0.0124"}, {secondsText(0.944), "0.944"},
		{secondsText(1.23456), "1.23"}, {secondsText(49.12), "49.1"}, {secondsText(732.4), "732"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
