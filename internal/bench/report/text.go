package bench

import (
	"fmt"
	"math"
)

func choice[T any](b bool, yes, no T) T {
	if b {
		return yes
	}
	return no
}

// countText writes a number with separators.
func countText(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func things(n int, one, more string) string { return countText(n) + " " + choice(n == 1, one, more) }

// secondsText writes seconds with three digits that say something.
func secondsText(s float64) string {
	digits := 2 - int(math.Floor(math.Log10(max(s, 0.001))))
	return fmt.Sprintf("%.*f", max(0, digits), s)
}

func timesText(times float64) string { return fmt.Sprintf("%.2f x", times) }
