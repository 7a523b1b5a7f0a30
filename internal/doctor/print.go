package doctor

import (
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Shown are the findings to print: with all those of severity OK, too.
func Shown(found []Finding, all bool) []Finding {
	list := []Finding{}
	for _, f := range found {
		if all || f.Severity != OK {
			list = append(list, f)
		}
	}
	return list
}

// Text is findings by severity, the worst first, and a line that counts them.
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

// write writes a finding: what it is, and indented below it what was read, what it costs and what to do.
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
	} else { // to be copied as it is
		indented(t, "remedy", strings.Split(f.Remedy, "\n"))
	}
	if f.Severity != OK {
		t.Line("")
	}
}

// indented writes a part of a finding; nothing when it has no text.
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

// textWidth is where lines of words end, in columns.
const textWidth = 100
