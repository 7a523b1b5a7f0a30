package lab

import "strings"

// Better says in which direction a figure of a unit gets better: 1 for more, -1 for less, 0 for neither or unknown. Shares ("of-empty") are of a
// limit or of a requested amount; multiples ("x-rival") are of a rival.
func Better(unit string) int {
	switch {
	case less[unit] || strings.HasSuffix(unit, "-ns") || strings.HasSuffix(unit, "-s") || strings.HasSuffix(unit, "-B"):
		return -1
	case more[unit] || strings.HasPrefix(unit, "of-") || strings.HasPrefix(unit, "x-") || strings.HasSuffix(unit, "-of-limit"):
		return 1
	}
	return 0
}

var (
	less = map[string]bool{"ns/op": true, "timeouts": true, "failed": true, "amplification": true}
	more = map[string]bool{
		"Mpps": true, "able-Mpps": true, "req/s": true, "full-req/s": true, "answered": true, "answered/s": true,
		"completed": true, "connections/s": true,
	}
)
