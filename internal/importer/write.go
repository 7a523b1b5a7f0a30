// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/packet"
)

const (
	inRule     = 6   // largest number of addresses that a rule lists itself; more become a set
	inPolicy   = 64  // largest number of addresses that a set in the policy lists, if list files are wanted; more addresses become a file
	maxDynamic = 7   // largest number of dynamic sets besides the host's own addresses (internal/compile/image, MaxDynamicSets)
	columns    = 110 // width of a line of the policy
)

// List is a list file.
type List struct {
	Name string // relative to the policy
	Data []byte
}

// writer writes a policy.
type writer struct {
	report    *saved.Report
	listFiles bool
	setNames  names
	ruleNames names
	sets      []*saved.Set
	lists     []List
	rules     []string
	services  []service
	standard  verdict
	manyHere  *saved.Set
	own       []*saved.Set // the sets that were made from addresses of rules
	current   *flat
	unfit     string                   // the reason why no host with XDP accepts the policy
	origin    map[string][]saved.Place // origins of the policy's rules, by the rule's name
	made      string                   // the name of the set that was made from the current rule's addresses
}

// standardOf returns the default of a policy with these rules. It is drop if the last rule drops or rejects all
// packets that reach it.
func standardOf(list []flat) verdict {
	if n := len(list); n > 0 && list[n-1].Everything() && list[n-1].over == nil && list[n-1].Field[packet.Family] == nil && list[n-1].verdict != pass {
		return drop
	}
	return pass
}

// write returns the text of the policy.
func (w *writer) write(devices []string, list []flat, all []*saved.Set, exempt untracked) string {
	w.setNames = names{"local": true}
	w.ruleNames = names{"default": true, "not-ip": true}
	w.origin = map[string][]saved.Place{}
	for _, s := range all {
		w.declare(s)
	}
	for i := range list {
		w.rule(&list[i])
	}
	traffic := exempt.traffic(w)
	var b strings.Builder
	fmt.Fprintf(&b, "devices: [%s]\n", strings.Join(quoted(devices), ", "))
	fmt.Fprintf(&b, "default: %s\n", w.standard)
	if w.standard == drop {
		b.WriteString("replies: drop  # as imported; with pass, answers to this host need no rule\n")
	}
	checks := "off"
	if len(w.report.Checked) > 0 {
		checks = "{profile: off, source-route: on}"
	}
	b.WriteString("checks: " + checks + "  # those that rules rest on hold anyway (`floodwall check`); standard adds what no sane packet fails\n")
	if traffic != "" {
		fmt.Fprintf(&b, "untracked: %s\n", traffic)
	}
	w.writeSets(&b)
	if w.rules != nil {
		b.WriteString("\nrules:\n" + strings.Join(w.rules, ""))
	}
	w.writeServices(&b, exempt)
	return b.String()
}

// writeServices writes the services: the ports that are not tracked, and the services whose SYNs are answered with
// cookies.
func (w *writer) writeServices(b *strings.Builder, exempt untracked) {
	text := exempt.service()
	for _, s := range w.services {
		text += s.line(w.ruleNames.unique("synproxy"))
	}
	if text != "" {
		b.WriteString("\nservices:\n" + text)
	}
}

// quoted returns words as elements of a YAML list. Words with characters that no name has are in quotes.
func quoted(words []string) (out []string) {
	for _, w := range words {
		if safeName(w) != w {
			w = strconv.Quote(w)
		}
		out = append(out, w)
	}
	return out
}

// rule writes one rule as a line.
func (w *writer) rule(f *flat) {
	w.current, w.made = f, ""
	if f.name == "published" {
		f.name = f.called()
	}
	if f.name == "" && f.comment != "" {
		f.name = safeName(f.comment)
	}
	k := render(f.Cond, w.words)
	if f.name == "" {
		f.name = w.made
	}
	if f.name == "" {
		f.name = f.called()
	}
	var words []string
	if f.name != "" {
		name := w.ruleNames.unique(f.name)
		w.origin[name] = f.at
		words = append(words, "name: "+name)
	}
	words = append(words, k.is...)
	if k.not != nil {
		words = append(words, "not: {"+strings.Join(k.not, ", ")+"}")
	}
	if f.over != nil {
		words = append(words, "over: "+f.over.String())
	}
	words = append(words, "then: "+f.verdict.String())
	line := "  - {" + strings.Join(words, ", ") + "}  # " + remark(f)
	if f.verdict == drop && k.is == nil && k.not == nil && f.over == nil {
		line += "; without this line neighbor discovery, ICMP errors and DHCP would pass"
	}
	w.rules = append(w.rules, line+"\n")
}

// remark returns the origin of a rule, and its comment if that is different from its name.
func remark(f *flat) string {
	var files, parts []string
	byFile := map[string][]saved.Place{}
	for _, p := range f.at {
		if byFile[p.File] == nil {
			files = append(files, p.File)
		}
		byFile[p.File] = append(byFile[p.File], p)
	}
	for _, file := range files {
		parts = append(parts, origin(byFile[file]))
	}
	text := strings.Join(parts, ", ")
	if f.comment != "" && safeName(f.comment) != f.comment {
		text += ": " + oneLine(f.comment)
	}
	return text
}

// origin returns the lines of one file.
func origin(at []saved.Place) string {
	first, last := at[0], at[0]
	for _, p := range at {
		if p.Line < first.Line {
			first = p
		}
		if p.Line > last.Line {
			last = p
		}
	}
	file := filepath.Base(first.File)
	switch {
	case first.Line == 0 && first.At == "":
		return file
	case first.Line == 0 && last.At != first.At:
		return fmt.Sprintf("%s, %d rules", first.At, len(at))
	case first.Line == 0:
		return first.At
	case first.Line == last.Line:
		return fmt.Sprintf("%s:%d", file, first.Line)
	}
	return fmt.Sprintf("%s:%d-%d (%d rules)", file, first.Line, last.Line, len(at))
}

// oneLine returns text without characters that no policy may contain, and without those that would end a comment.
func oneLine(text string) string {
	const hidden = "\ufeff\ufdd0\ufffd\u2028\u2029" // a byte order mark, a noncharacter, the replacement of invalid UTF-8, line ends
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || strings.ContainsRune(hidden, r)
	}), " ")
}
