// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Shown returns the findings to print. If `all` is false, it leaves out those that are OK.
func Shown(found []Finding, all bool) []Finding {
	list := []Finding{}
	for _, f := range found {
		if all || f.Severity != OK {
			list = append(list, f)
		}
	}
	return list
}

// Text returns the findings to print as text, sorted by severity, the highest first. The last line has their numbers.
func Text(found []Finding, all bool) string {
	var t wording.Text
	number := map[Severity]int{}
	for _, severity := range Severities {
		for _, f := range found {
			if f.Severity != severity {
				continue
			}
			number[severity]++
			if all || severity != OK {
				f.write(&t)
			}
		}
	}
	t.Line("%s, %s, %s, %d ok", wording.Things(number[Problem], "problem", "problems"),
		wording.Things(number[Warning], "warning", "warnings"), wording.Things(number[Note], "note", "notes"), number[OK])
	return t.String()
}

// write writes a finding: first the subject, then the evidence, the cost and the remedy, indented.
func (f *Finding) write(t *wording.Text) {
	head := string(f.Severity) + ": " + f.ID
	if f.Device != "" {
		head += ", device " + f.Device
	}
	t.Line("%s", head)
	indented(t, "evidence", wording.Wrapped(f.Evidence, textWidth))
	indented(t, "cost", wording.Wrapped(f.Cost, textWidth))
	if f.RemedyKind == Advice {
		indented(t, "remedy", wording.Wrapped(f.Remedy, textWidth))
	} else { // not wrapped, so that it can be copied
		indented(t, "remedy", strings.Split(f.Remedy, "\n"))
	}
	if f.Severity != OK {
		t.Line("")
	}
}

// indented writes a part of a finding, unless the part is empty.
func indented(t *wording.Text, name string, lines []string) {
	if len(lines) == 1 && lines[0] == "" {
		return
	}
	for i, line := range lines {
		if i > 0 {
			name = ""
		}
		t.Line("  %-9s %s", name, line)
	}
}

// textWidth is the width of wrapped text, in columns.
const textWidth = 100
