package saved

import "strings"

// ruleLine is a rule as a text has it.
type ruleLine struct {
	number int // in the file
	text   string
}

// ruleLines are the rules of a text in the form of `nft list ruleset`, by table and chain in their order.
type ruleLines map[string][]ruleLine

// of is the nth rule of a chain, from 0, which has count rules.
func (l ruleLines) of(table, chain string, n, count int) (ruleLine, bool) {
	rules := l[table+" "+chain]
	if count != len(rules) {
		return ruleLine{}, false // they are not one a line, and could not be told apart
	}
	return rules[n], true
}

// scanNft finds the rules in a text: one a line, in blocks of tables and chains. It is for messages only; in a text of
// another form it finds fewer.
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

// isNftRule reports whether a line of a chain that begins with word is a rule.
func isNftRule(word string) bool {
	return word != "type" && word != "policy" && word != "comment" && word != "}" && word != "devices"
}
