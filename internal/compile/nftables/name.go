// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"strings"
)

// names are the names in use in a table.
type names map[string]bool

// add returns a name made from text that is not in use yet, and marks it as used. It is a valid identifier of nft: it consists of letters, digits and
// _ - . and begins with a letter. With suffixes that are added later, it has at most 255 bytes.
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
