package importer

import (
	"fmt"
	"strings"
)

const (
	nameRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	maxName   = 40
)

// safeName is text as a name of the policy, or "" when nothing of it can be one.
func safeName(text string) string {
	safe := strings.Map(func(r rune) rune {
		if strings.ContainsRune(nameRunes, r) {
			return r
		}
		return '-'
	}, text)
	for strings.Contains(safe, "--") {
		safe = strings.ReplaceAll(safe, "--", "-")
	}
	safe = strings.TrimLeft(safe, "-.")
	return strings.TrimRight(safe[:min(len(safe), maxName)], "-.")
}

// names gives each rule, or each set, a name of its own.
type names map[string]bool

// unique is name, with a number when it is taken.
func (n names) unique(name string) string {
	free := name
	for i := 2; n[strings.ToLower(free)]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	n[strings.ToLower(free)] = true
	return free
}
