package report

import (
	"fmt"
	"math"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Choice returns yes if b is true, else no.
func Choice[T any](b bool, yes, no T) T {
	if b {
		return yes
	}
	return no
}

// CountText writes a number with thousands separators.
func CountText(n int) string { return wording.Count(n) }

// Things returns text for a number of things, for example "1 route" and "2,000 routes".
func Things(n int, one, more string) string { return wording.Things(n, one, more) }

// SecondsText writes seconds with three significant digits.
func SecondsText(s float64) string {
	digits := 2 - int(math.Floor(math.Log10(max(s, 0.001))))
	return fmt.Sprintf("%.*f", max(0, digits), s)
}

// TimesText writes a ratio of two figures.
func TimesText(times float64) string { return fmt.Sprintf("%.2f x", times) }
