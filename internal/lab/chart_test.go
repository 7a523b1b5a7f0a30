// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChart(t *testing.T) {
	samples := []Sample{
		{Time: time.Second, OK: 800, Rate: 800, P50: 1200 * time.Microsecond, P99: 25 * time.Millisecond},
		{Time: 2001 * time.Millisecond, OK: 400, Failed: 3, Rate: 400, P50: 900 * time.Microsecond, P99: 1234 * time.Millisecond},
		{Time: 3 * time.Second, Failed: 125},
		{Time: 3500 * time.Millisecond, OK: 10, Rate: 20, P50: time.Millisecond, P99: time.Millisecond},
		{Time: 4 * time.Second, Failed: 7, Late: true},
	}
	want := `    time     per s   failed      half       99%
     1 s       800        0   1.20 ms   25.0 ms  ████████
     2 s       400        3  0.900 ms   1234 ms  ████
     3 s         0      125
   3.5 s        20        0   1.00 ms   1.00 ms  ▎
     4 s      rest        7
`
	if diff := cmp.Diff(want, Chart(samples, 10, 8)); diff != "" {
		t.Errorf("chart (-want +got):\n%s", diff)
	}
	want = `    time     per s   failed      half       99%
     2 s       600        3   1.20 ms   1234 ms  ████████
   3.5 s         7      125   1.00 ms   1.00 ms  ▏
     4 s      rest        7
`
	if diff := cmp.Diff(want, Chart(samples, 3, 8)); diff != "" {
		t.Errorf("chart of few lines (-want +got):\n%s", diff)
	}
}

func TestSpark(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{Spark([]float64{0, 1, 4, 8, 9, -1}, 8), "▁▁▄██▁"}, {Spark(nil, 1), ""}, {Spark([]float64{0, 0}, 0), "▁▁"},
		{Bar(1, 2, 4), "██"}, {Bar(3, 2, 4), "████"}, {Bar(0, 0, 4), ""}, {Bar(1, 64, 8), "▏"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
