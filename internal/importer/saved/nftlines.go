// SPDX-License-Identifier: Apache-2.0

package saved

import "strings"

// ruleLine is the line of a rule in a text.
type ruleLine struct {
	number int // in the file
	text   string
}

// ruleLines are the rules of a text in the form of `nft list ruleset`, in order. The key is the table and the chain.
type ruleLines map[string][]ruleLine

// of returns the nth rule of a chain, counted from 0. The chain has count rules.
func (l ruleLines) of(table, chain string, n, count int) (ruleLine, bool) {
	rules := l[table+" "+chain]
	if count != len(rules) {
		return ruleLine{}, false // several rules are on one line, so it is unknown which line belongs to which rule
	}
	return rules[n], true
}

// scanNft finds the rules in a text that has one rule per line, in blocks of tables and chains. The result is used
// only in messages. In a text of another form, scanNft finds fewer rules.
func scanNft(text string) ruleLines {
	lines := ruleLines{}
	var table, chain string
	depth, number := 0, 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		line = strings.TrimSpace(line)
		before := depth
		depth += strings.Count(line, "{") - strings.Count(line, "}")
		words := strings.Fields(strings.TrimSuffix(line, "{"))
		switch {
		case len(words) == 0 || line[0] == '#':
		case before == 0 && words[0] == "table" && depth == 1:
			table = strings.Join(words[1:], " ")
			if len(words) == 2 {
				table = "ip " + table
			}
		case before == 1 && depth == 2:
			chain = ""
			if words[0] == "chain" && len(words) > 1 {
				chain = words[1]
			}
		case before == 2 && chain != "" && isNftRule(words[0]):
			lines[table+" "+chain] = append(lines[table+" "+chain], ruleLine{number, line})
		}
	}
	return lines
}

// isNftRule reports whether a line of a chain is a rule. word is the line's first word.
func isNftRule(word string) bool {
	return word != "type" && word != "policy" && word != "comment" && word != "}" && word != "devices"
}
