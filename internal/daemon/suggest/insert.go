package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/policy"
)

// errByHand is the error for a policy whose format Insert cannot change.
var errByHand = errors.New("suggest: the rules of the policy do not begin with - in a line of their own each: add the new ones by hand")

// Insert adds rules to the text of a policy. It puts each rule before the rule that its field Before names, or after all other rules. It puts a
// comment above each rule. Nothing else changes.
func Insert(text string, p *policy.Policy, rules []Rule, comment func(Rule) string) (string, error) {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n")+"\n", "\n")
	lines = lines[:len(lines)-1]
	list, indent, err := listOf(lines, p)
	if err != nil {
		return "", err
	}
	added := map[int][]string{} // by the index of the line that they precede
	for _, r := range rules {
		at := list
		for _, old := range p.Rules {
			if old.Name == r.Before {
				at = old.Pos.Line - 1
			}
		}
		if at < list && !strings.HasPrefix(lines[at], indent+"-") {
			return "", errByHand
		}
		added[at] = append(added[at], indent+"# "+comment(r)+"\n", indent+"- "+r.Text+"\n")
	}
	if len(p.Rules) == 0 {
		added[list] = append([]string{"rules:\n"}, added[list]...)
	}
	var out strings.Builder
	for i, line := range append(lines, "") {
		out.WriteString(strings.Join(added[i], "") + line)
	}
	return out.String(), same(out.String(), p, len(rules))
}

// listOf returns the index of the line after the last rule, and the indentation of the rules. Without rules, it returns the line where the key
// `rules` can be added.
func listOf(lines []string, p *policy.Policy) (end int, indent string, err error) {
	if len(p.Rules) == 0 {
		if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "rules:") }) {
			return 0, "", errByHand
		}
		end = slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "services:") })
		if end < 0 {
			end = len(lines)
		}
		return end, "  ", nil
	}
	last := p.Rules[len(p.Rules)-1].Pos.Line - 1
	indent = lines[last][:len(lines[last])-len(strings.TrimLeft(lines[last], " "))]
	if !strings.HasPrefix(lines[last], indent+"-") {
		return 0, "", errByHand
	}
	end = last + 1
	for i := end; i < len(lines); i++ {
		bare := strings.TrimSpace(lines[i])
		switch {
		case bare == "" || strings.HasPrefix(bare, "#"):
		case strings.HasPrefix(lines[i], indent+" "):
			end = i + 1 // the rule continues on this line
		default:
			return end, indent, nil
		}
	}
	return end, indent, nil
}

// same returns an error unless text is the policy `before` with this many additional rules.
func same(text string, before *policy.Policy, more int) error {
	after, err := policy.Parse(before.File, []byte(text))
	if err != nil {
		return fmt.Errorf("suggest: the policy with the new rules: %w", err)
	}
	if len(after.Rules) != len(before.Rules)+more || len(after.Services) != len(before.Services) || len(after.Sets) != len(before.Sets) {
		return errByHand
	}
	return nil
}
