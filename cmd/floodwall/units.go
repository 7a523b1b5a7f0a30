package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// count writes a number with separators: 1,234,567.
func count[T int | uint64](n T) string {
	digits := strconv.FormatUint(uint64(n), 10)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}

// things is a count of something: 1 rule, 2 rules.
func things(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return count(n) + " " + plural
}

// bytes writes an amount of data in powers of 1000, as networks are measured.
func amount(n uint64) string {
	value, unit := float64(n), ""
	for _, unit = range []string{"B", "kB", "MB", "GB", "TB", "PB"} {
		if value < 999.5 {
			break
		}
		value /= 1000
	}
	if unit == "B" || value >= 99.95 {
		return fmt.Sprintf("%.0f %s", value, unit)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// span writes a time in its two largest units: 3d4h, 59m12s.
func span(d time.Duration) string {
	parts := []struct {
		unit string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, p := range parts {
		if d < p.of {
			continue
		}
		out := fmt.Sprintf("%d%s", d/p.of, p.unit)
		if i+1 < len(parts) {
			if rest := d % p.of / parts[i+1].of; rest > 0 {
				out += fmt.Sprintf("%d%s", rest, parts[i+1].unit)
			}
		}
		return out
	}
	return "0s"
}
