// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// widths and heights are block characters. Each step is an eighth of a character's width or height.
var (
	widths  = []rune(" ▏▎▍▌▋▊▉█")
	heights = []rune("▁▂▃▄▅▆▇█")
)

// Bar returns a bar of at most width characters that shows part as a share of whole.
func Bar(part, whole float64, width int) string {
	if !(whole > 0) || !(part > 0) {
		return ""
	}
	eighths := int(math.Round(min(part/whole, 1) * float64(8*width)))
	bar := strings.Repeat(string(widths[8]), eighths/8)
	if eighths%8 > 0 {
		bar += string(widths[eighths%8])
	}
	return bar
}

// Spark returns a line with a character for each figure. The height of a character shows the figure as a share of most.
func Spark(figures []float64, most float64) string {
	var line strings.Builder
	for _, f := range figures {
		n := 0
		if most > 0 {
			n = int(math.Ceil(min(max(f/most, 0), 1)*float64(len(heights)))) - 1
		}
		line.WriteRune(heights[max(n, 0)])
	}
	return line.String()
}

// Chart draws the answered requests per second over time. It has a line for each sample with the time, the rate, the failures, the median, the 99th
// percentile, and a bar. If there are more samples than lines, it merges neighboring samples.
func Chart(samples []Sample, lines, width int) string {
	samples = gather(samples, lines)
	most := 0.0
	for _, s := range samples {
		most = max(most, s.Rate)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%8s %9s %8s %9s %9s\n", "time", "per s", "failed", "half", "99%")
	for _, s := range samples {
		rate, p50, p99 := fmt.Sprintf("%.0f", s.Rate), "", ""
		if s.OK > 0 {
			p50, p99 = Millis(s.P50), Millis(s.P99)
		}
		if s.Late {
			rate = "rest"
		}
		line := fmt.Sprintf("%8s %9s %8d %9s %9s  %s", clock(s.Time), rate, s.Failed, p50, p99, Bar(s.Rate, most, width))
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

// gather merges neighboring samples, so that at most most samples remain. The percentile of a merged sample is the highest one of its samples.
func gather(samples []Sample, most int) []Sample {
	each := (len(samples) + most - 1) / most
	if each < 2 {
		return samples
	}
	var together []Sample
	before := time.Duration(0)
	for len(samples) > 0 {
		part := samples[:min(each, len(samples))]
		samples = samples[len(part):]
		sum := Sample{Time: part[len(part)-1].Time, Late: part[0].Late}
		for _, s := range part {
			sum.OK, sum.Failed = sum.OK+s.OK, sum.Failed+s.Failed
			sum.P50, sum.P99 = max(sum.P50, s.P50), max(sum.P99, s.P99)
		}
		if !sum.Late {
			sum.Rate = float64(sum.OK) / (sum.Time - before).Seconds()
		}
		before = sum.Time
		together = append(together, sum)
	}
	return together
}

// clock returns a time since the start in seconds. It has one decimal if it is not a whole number.
func clock(t time.Duration) string {
	seconds := t.Seconds()
	if math.Abs(seconds-math.Round(seconds)) < 0.05 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

// Millis returns a time in milliseconds with three digits, for tables.
func Millis(t time.Duration) string {
	ms := float64(t) / float64(time.Millisecond)
	digits := 2 - int(math.Floor(math.Log10(max(ms, 0.1))))
	return fmt.Sprintf("%.*f ms", max(0, digits), ms)
}
