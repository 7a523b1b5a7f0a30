package lab

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseRate reads a rate in packets per second, with k or M for thousands and millions; "" is 0.
func ParseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit := text, 1.0
	for suffix, u := range map[string]float64{"k": 1e3, "M": 1e6} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = n, u
		}
	}
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil || !(rate > 0) || math.IsInf(rate, 0) {
		return 0, fmt.Errorf("want a positive number of packets per second, got %q", text)
	}
	return rate * unit, nil
}
