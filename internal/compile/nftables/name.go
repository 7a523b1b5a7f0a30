package nftables

import (
	"fmt"
	"strings"
)

// names are the names that are taken in a table.
type names map[string]bool

// add takes a name that is an identifier to nft (letters, digits and _ - . in it, a letter first, at most 255 bytes
// with what is added to it) and that nothing else has.
func (n names) add(text string) string {
	const most = 200
	name := strings.Map(letter, text)
	name = name[:min(most, len(name))]
	for i := 2; n[name]; i++ {
		name = fmt.Sprintf("%s-%d", strings.TrimSuffix(name, fmt.Sprintf("-%d", i-1)), i)
	}
	n[name] = true
	return name
}

func letter(c rune) rune {
	if isLetter(c) || c >= '0' && c <= '9' || c == '_' || c == '.' {
		return c
	}
	return '-'
}

func isLetter(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
