// SPDX-License-Identifier: Apache-2.0

package edit_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
	"github.com/floodwall/floodwall/test/testutil"
)

// added is the entry of TestLayouts.
var added = edit.Entry{Keys: []string{"name: new", "port: tcp/8080"}}

// TestLayouts adds a service behind all others to policies of all layouts. It compares the text, and then removes the service again.
func TestLayouts(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"dashes", "services: # served\n  - {name: a, port: 1}   # one\n\n  # the end\n",
			"services: # served\n  - {name: a, port: 1}   # one\n  - {name: new, port: tcp/8080}\n\n  # the end\n"},
		{"block style", "services:\n- name: a\n  # why\n  port:\n  - 1\n\nrules: []\n",
			"services:\n- name: a\n  # why\n  port:\n  - 1\n- name: new\n  port: tcp/8080\n\nrules: []\n"},
		{"no line end", "services:\n    - {name: a, port: 1}", "services:\n    - {name: a, port: 1}\n    - {name: new, port: tcp/8080}"},
		{"line ends of Windows, mark", "\ufeffservices:\r\n  - {name: a, port: 1}\r\n", "\ufeffservices:\r\n  - {name: a, port: 1}\r\n  - {name: new, port: tcp/8080}\r\n"},
		{"no key", "default: drop\n# end\n", "default: drop\n# end\nservices:\n  - {name: new, port: tcp/8080}\n"},
		{"no key, no line end", "default: drop", "default: drop\nservices:\n  - {name: new, port: tcp/8080}"},
		{"a key without items", "services:   # none\ndefault: drop\n", "services:   # none\n- {name: new, port: tcp/8080}\ndefault: drop\n"},
		{"a bare key without items", "services:\ndefault: drop\n", "services:\n- {name: new, port: tcp/8080}\ndefault: drop\n"},
		{"braces over two lines", "services:\n  - {name: a,\n     port: 1} # one\ndefault: drop\n",
			"services:\n  - {name: a,\n     port: 1} # one\n  - {name: new, port: tcp/8080}\ndefault: drop\n"},
		{"empty brackets", "services: [ ] # none\n", "services: [{name: new, port: tcp/8080} ] # none\n"},
		{"brackets", "services: [{name: a, port: 1}] # one\n", "services: [{name: a, port: 1}, {name: new, port: tcp/8080}] # one\n"},
		{"brackets, comma", "services: [{name: a, port: 1}, ]\n", "services: [{name: a, port: 1}, {name: new, port: tcp/8080}, ]\n"},
		{"brackets over lines", "services: [\n  {name: a, port: 1}  # one, and\n]\n",
			"services: [\n  {name: a, port: 1},  # one, and\n  {name: new, port: tcp/8080}\n]\n"},
		{"brackets over lines, comma", "services: [\n  {name: a, port: 1},  # one\n  # end\n]\n",
			"services: [\n  {name: a, port: 1},  # one\n  {name: new, port: tcp/8080},\n  # end\n]\n"},
		{"an alias", "services:\n  - &a {name: a, port: 1}\n  - *a\n", "services:\n  - &a {name: a, port: 1}\n  - *a\n  - {name: new, port: tcp/8080}\n"},
		{"wide characters", "services: [{name: \"ä世\", port: 1}, {name: b, port: 2}]\n",
			"services: [{name: \"ä世\", port: 1}, {name: b, port: 2}, {name: new, port: tcp/8080}]\n"},
	} {
		got, err := edit.Insert([]byte(row.text), edit.Services, edit.Last, added)
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %v\n%s", row.name, err, cmp.Diff(row.want, string(got)))
			continue
		}
		back, err := edit.Remove(got, edit.Services, strings.Count(row.want, "name:")-1+strings.Count(row.text, "- *"))
		if err != nil || string(back) != row.text {
			t.Errorf("%s: the way back: %v\n%s", row.name, err, cmp.Diff(row.text, string(back)))
		}
	}
}

// TestRefusals edits texts whose layout does not allow it. The error must say where the list is, and what to add by hand.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, want string }{
		{"one mapping in braces", "{default: drop}\n", "the layout of services"},
		{"an alias for the list", "rules: &l\n  - {name: a, port: 1, then: drop}\nservices: *l\n", "line 3: the layout of services"},
		{"null", "services: ~\n", "line 1: the layout of services"},
		{"a literal that looks like a comment", "services:\n  - name: |\n      a\n      # b\n", "line 1: the layout of services"},
		{"a mistake", "services: [\n", "line 1, column 11"},
	} {
		got, err := edit.Insert([]byte(row.text), edit.Services, edit.Last, added)
		if err == nil || !strings.HasPrefix(err.Error(), row.want) || got != nil {
			t.Errorf("%s: %v\n%s", row.name, err, got)
		}
		if layout := new(edit.LayoutError); errors.As(err, &layout) && !strings.Contains(layout.Hint(), "{name: new, port: tcp/8080}") {
			t.Errorf("%s: the hint is %q", row.name, layout.Hint())
		}
	}
	_, err := edit.Remove([]byte("services:\n  - {name: a, port: &p 1}\n  - {name: b, port: *p}\n"), edit.Services, 0)
	if layout := new(edit.LayoutError); !errors.As(err, &layout) || !strings.Contains(layout.Hint(), "names no anchor") {
		t.Errorf("an entry with an anchor that is used: %v", err)
	}
}

// examples returns the policies of the repository: those of the parser's tests, of the documents, and of all other YAML files that are policies.
func examples(t *testing.T) map[string]string {
	t.Helper()
	list := map[string]string{}
	fence := regexp.MustCompile("(?ms)^```yaml[^\n]*\n(.*?)^```")
	for _, pattern := range []string{"policy/testdata/good/*.yaml", "docs/*.md", "docs/*/*.md", "*.md", "packaging/*/*.yaml", "contrib/*/*.yaml",
		"test/testdata/*.yaml", "internal/*/testdata/*/*.yaml", "internal/*/*/testdata/*.yaml"} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, ".md") {
				list[file] = string(text)
			}
			for i, m := range fence.FindAllStringSubmatch(string(text), -1) {
				list[fmt.Sprintf("%s, block %d", file, i+1)] = m[1]
			}
		}
	}
	for name, text := range list {
		if !valid(text) {
			delete(list, name)
		}
	}
	if len(list) < 60 {
		t.Errorf("only %d policies were found", len(list))
	}
	return list
}

// TestExamples adds and removes entries at random places of all policies of the repository, and of random ones. Only the lines of the entry may
// change, the policy must stay valid, and the removal of what was added must give the same bytes.
func TestExamples(t *testing.T) {
	t.Parallel()
	r, edits := testutil.Random(t), testutil.Scaled(2000, 50_000)
	texts := examples(t)
	names := slices.Sorted(maps.Keys(texts))
	refused := 0
	for n := range edits {
		name := names[n%len(names)]
		text := texts[name]
		if n%2 == 1 {
			for name, text = fmt.Sprintf("random policy %d", n), random(r); !valid(text); { // the YAML library does not know all of YAML
				text = random(r)
			}
		}
		if !roundTrip(t, r, name, text) {
			refused++
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d edits were refused", refused, edits)
	if refused > edits/20 {
		t.Errorf("%d of %d edits were refused", refused, edits)
	}
}

func valid(text string) bool {
	_, err := policy.Parse("policy.yaml", []byte(text))
	return err == nil
}

func roundTrip(t *testing.T, r *rand.Rand, name, text string) (done bool) {
	t.Helper()
	p, err := policy.Parse(name, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	list, items, e := edit.Services, len(p.Services), edit.Entry{Keys: []string{"name: zz-new", "port: [tcp/8080, udp/2001]", "from: 2001:db8::/32"}}
	if r.IntN(2) == 0 {
		list, items, e = edit.Rules, len(p.Rules), edit.Entry{Keys: []string{"name: zz-new", "from: 2001:db8::", "then: drop"}}
		e.Keys[1] = `from: "2001:db8::"`
	}
	if items > 0 && r.IntN(3) == 0 {
		removal(t, name, text, list, r.IntN(items))
		shrinking(t, r, name, text, list, r.IntN(items))
	}
	at := r.IntN(items + 1)
	got, err := edit.Insert([]byte(text), list, at, e)
	if layout := new(edit.LayoutError); errors.As(err, &layout) {
		return false
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", name, err, text)
		return false
	}
	if kept := without(got, []byte(text)); !kept {
		t.Errorf("%s: other lines have changed at %s %d:\n%s", name, list, at, cmp.Diff(text, string(got)))
	}
	if !valid(string(got)) {
		t.Errorf("%s: not valid any more:\n%s", name, got)
	}
	back, err := edit.Remove(got, list, at)
	if err != nil || string(back) != text {
		t.Errorf("%s: the way back at %s %d of %d: %v\n%s\nafter the edit:\n%s", name, list, at, items, err, cmp.Diff(text, string(back)), got)
	}
	return true
}

// removal removes an entry of a policy. Nothing may be added.
func removal(t *testing.T, name, text, list string, i int) {
	t.Helper()
	got, err := edit.Remove([]byte(text), list, i)
	if layout := new(edit.LayoutError); errors.As(err, &layout) {
		return
	}
	if err != nil || !without([]byte(text), got) {
		t.Errorf("%s: the removal of item %d of %s: %v\n%s", name, i, list, err, cmp.Diff(text, string(got)))
	}
}

// shrinking removes an item of a key of an entry. Nothing else may change.
func shrinking(t *testing.T, r *rand.Rand, name, text, list string, i int) {
	t.Helper()
	for _, key := range []string{"port", "from"} {
		words := edit.Words([]byte(text), list, i, key)
		if len(words) < 2 {
			continue
		}
		item := r.IntN(len(words))
		got, err := edit.Shrink([]byte(text), list, i, edit.Part{Key: key, Item: item}, nil)
		if layout := new(edit.LayoutError); errors.As(err, &layout) {
			continue
		}
		if err != nil || !without([]byte(text), got) { // the policy may need the item, as for a guard
			t.Errorf("%s: the removal of %s of %s %d: %v\n%s", name, words[item], list, i, err, cmp.Diff(text, string(got)))
			continue
		}
		if left := edit.Words(got, list, i, key); !slices.Equal(left, slices.Delete(words, item, item+1)) {
			t.Errorf("%s: left of %s: %q", name, key, left)
		}
	}
}

// without reports whether less is long without some bytes that stand together, apart from one comma before them.
func without(long, less []byte) bool {
	at := 0
	for at < len(less) && long[at] == less[at] {
		at++
	}
	if bytes.HasSuffix(long, less[at:]) {
		return true
	}
	return at < len(long) && long[at] == ',' && without(slices.Delete(slices.Clone(long), at, at+1), less)
}

// random returns a policy of a random layout, with comments, anchors, aliases and line ends of both kinds.
func random(r *rand.Rand) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	number := 0
	entries := func(then string) (list []string) {
		for range r.IntN(4) {
			number++
			keys := []string{fmt.Sprintf("name: n%d", number)}
			switch r.IntN(4) {
			case 0:
				keys = append(keys, fmt.Sprintf("port: [tcp/%d, udp/%d]", number, number))
			case 1:
				keys = append(keys, "port: *ports")
			default:
				keys = append(keys, fmt.Sprintf("port: %d", number), pick("from: $office", "from: [2001:db8::1, 192.0.2.1]", "from: &f [192.0.2.0/24]"))
			}
			list = append(list, strings.Join(append(keys, then), "\n"))
		}
		return list
	}
	end := pick("\n", "\n", "\r\n")
	sets := "sets:\n  office: [192.0.2.0/24]  # ours\n"
	text := pick("", "# first\n", "---\n") + "devices: [eth0]" + pick("", "  # outside") + "\n" + "untracked: [{port: &ports [tcp/1, tcp/2]}]\n" + sets
	lists := []string{"rules:" + layout(pick, r, entries("then: drop")), "services:" + layout(pick, r, entries(""))}
	if r.IntN(2) == 0 {
		slices.Reverse(lists)
	}
	for _, l := range lists {
		if r.IntN(6) > 0 {
			text += pick("", "\n", "# a list\n") + l
		}
	}
	text += pick("", "default: drop\n", "\n# end\n", "  # indented\n")
	if r.IntN(4) == 0 {
		text = strings.TrimRight(text, "\n")
	}
	return strings.ReplaceAll(text, "\n", end)
}

// layout writes a list in a random layout.
func layout(pick func(...string) string, r *rand.Rand, entries []string) string {
	remark := func() string { return pick("", "", "  # why: {a, b}, [c]") }
	braces := func(keys string) string {
		return "{" + strings.ReplaceAll(strings.TrimSpace(keys), "\n", pick(", ", ",\n        ")) + "}"
	}
	if len(entries) == 0 {
		return pick(" []", "", " # none", " [ ]", " [\n]") + "\n"
	}
	switch r.IntN(3) {
	case 0:
		text := remark()
		indent := pick("", "  ", "    ")
		for _, e := range entries {
			text += "\n" + pick("", "\n", indent+"# above\n") + indent + "- "
			if r.IntN(2) == 0 {
				text += braces(e) + remark()
			} else {
				text += strings.ReplaceAll(strings.TrimSpace(e), "\n", remark()+"\n"+indent+"  ") + remark()
			}
		}
		return text + "\n"
	case 1:
		text := " ["
		for i, e := range entries {
			text += braces(e) + pick(",", ", ", " ,")
			if i == len(entries)-1 && r.IntN(2) == 0 {
				text = strings.TrimRight(text, ", ")
			}
		}
		return text + "]" + remark() + "\n"
	}
	text := " [" + remark() + "\n"
	for i, e := range entries {
		comma := ","
		if i == len(entries)-1 {
			comma = pick("", ",")
		}
		text += pick("", "  # above\n") + "  " + braces(e) + comma + remark() + "\n"
	}
	return text + "]\n"
}
