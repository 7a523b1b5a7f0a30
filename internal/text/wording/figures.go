// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Count returns a number with thousands separators: 1,234,567.
func Count[T int | uint64](n T) string {
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

// Things returns a number with its noun: 1 rule, 2 rules.
func Things(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return Count(n) + " " + plural
}

// Bytes returns an amount of data as text. Units are powers of 1000, as in networks.
func Bytes(n uint64) string {
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

// Span returns a duration as text, in its two largest units: 3d4h, 59m12s.
func Span(d time.Duration) string {
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

// Rate returns a rate as text, with at least three digits: 12,345, 1.23M, 4.56G.
func Rate(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}} {
		if v >= unit.size {
			return fmt.Sprintf("%.2f%s", v/unit.size, unit.name)
		}
	}
	if v > 0 && v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return Count(int(math.Round(v)))
}

// Wrapped breaks a text between words into lines of at most width bytes. A word that is longer than width has a line of its own.
func Wrapped(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) > width:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return lines
}
