// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
)

// Insert adds rules to the text of a policy. It puts each rule before the rule that its field Before names, or after all other rules. It puts a
// comment above each rule. Nothing else changes.
func Insert(text string, p *policy.Policy, rules []Rule, comment func(Rule) string) (string, error) {
	var names []string // of the rules in the text, which edits keep up to date
	for _, r := range p.Rules {
		names = append(names, r.Name)
	}
	out := []byte(text)
	for _, r := range rules {
		at := slices.Index(names, r.Before)
		if at < 0 {
			at = len(names)
		}
		var err error
		if out, err = edit.Insert(out, edit.Rules, at, edit.Entry{Text: r.Text, Above: comment(r)}); err != nil {
			return "", fmt.Errorf("suggest: %w", err)
		}
		names = slices.Insert(names, at, r.Name)
	}
	return string(out), nil
}
