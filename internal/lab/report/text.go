package report

import (
	"fmt"
	"math"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Choice is yes or no, as b says.
func Choice[T any](b bool, yes, no T) T {
	if b {
		return yes
	}
	return no
}

// CountText writes a number with separators.
func CountText(n int) string { return wording.Count(n) }

// Things is a number of things, as in "1 route" and "2,000 routes".
func Things(n int, one, more string) string { return wording.Things(n, one, more) }

// SecondsText writes seconds with three digits that say something.
func SecondsText(s float64) string {
	digits := 2 - int(math.Floor(math.Log10(max(s, 0.001))))
	return fmt.Sprintf("%.*f", max(0, digits), s)
}

// TimesText writes how many times one figure is another.
func TimesText(times float64) string { return fmt.Sprintf("%.2f x", times) }
