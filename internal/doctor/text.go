package doctor

import (
	"strings"
)

// percent is part of whole, rounded down so that 100 means all of it; 0 of nothing.
func percent(part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	return uint64(float64(part) / float64(whole) * 100)
}

// quoted makes a word that a shell takes as it is.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+=,", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
