// SPDX-License-Identifier: Apache-2.0

package shorthand_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/shorthand"
)

// TestRemovePart removes parts of entries, in all layouts of lists. All other bytes of the text must stay.
func TestRemovePart(t *testing.T) {
	t.Parallel()
	const head = "devices: [eth0]\nsets: {office: [203.0.113.0/24]}\n"
	for _, row := range []struct{ line, text, want string }{
		{"198.51.100.7", "rules:\n  - {name: a, from: [198.51.100.7, 198.51.100.8], then: drop} # bad\n",
			"rules:\n  - {name: a, from: [198.51.100.8], then: drop} # bad\n"},
		{"deny 198.51.100.8", "rules:\n  - {name: a, from: [198.51.100.7, 198.51.100.8], then: drop}\n", "rules:\n  - {name: a, from: [198.51.100.7], then: drop}\n"},
		{"$office", "rules:\n  - {name: a, from: [$office, 198.51.100.8], then: drop}\n", "rules:\n  - {name: a, from: [198.51.100.8], then: drop}\n"},
		{"2001:db8::", "rules:\n  - {name: a, from: [\"2001:db8::\", 198.51.100.8], then: drop}\n", "rules:\n  - {name: a, from: [198.51.100.8], then: drop}\n"},
		{"198.51.100.8", "rules:\n  - name: a\n    from:\n      - 198.51.100.7\n      # the second\n      - 198.51.100.8   # gone\n      - 198.51.100.9\n    then: drop\n",
			"rules:\n  - name: a\n    from:\n      - 198.51.100.7\n      # the second\n      - 198.51.100.9\n    then: drop\n"},
		{"198.51.100.9", "rules:\n  - name: a\n    from: [\n      198.51.100.7, # one\n      198.51.100.9\n    ]\n    then: drop\n",
			"rules:\n  - name: a\n    from: [\n      198.51.100.7 # one\n    ]\n    then: drop\n"},
		{"tcp/8080", "services:\n  - {name: a, port: [80, 8080]}\n", "services:\n  - {name: a, port: [80, udp/8080]}\n"},
		{"8080", "services:\n  - {name: a, port: [80, 8080]}\n", "services:\n  - {name: a, port: [80]}\n"},
		{"tcp/8080", "services:\n  - {name: a, port: 8080}\n", "services:\n  - {name: a, port: udp/8080}\n"},
		{"8080", "services:\n  - {name: a, port: 8000-8999, syn: protect}\n", "services:\n  - {name: a, port: [8000-8079, 8081-8999], syn: protect}\n"},
		{"tcp/8080", "services:\n  - {name: a, port: [tcp/22, tcp/8000-8999]}\n", "services:\n  - {name: a, port: [tcp/22, tcp/8000-8079, tcp/8081-8999]}\n"},
		{"tcp/8080", "services:\n  - name: a\n    port:\n    - tcp/22\n    - tcp/8000-8999 # many\n",
			"services:\n  - name: a\n    port:\n    - tcp/22\n    - tcp/8000-8079\n    - tcp/8081-8999 # many\n"},
		{"80,443/tcp", "services:\n  - {name: a, port: [http, https, tcp/25]}\n", "services:\n  - {name: a, port: [tcp/25]}\n"},
		{"tcp/25 from $office", "services:\n  - {name: a, port: ['tcp/25', tcp/26], from: $office}\n", "services:\n  - {name: a, port: [tcp/26], from: $office}\n"},
		{"tcp/25 name b", "services:\n  - {name: a, port: [tcp/25, tcp/26]}\n  - {name: b, port: [tcp/25, tcp/27]}\n",
			"services:\n  - {name: a, port: [tcp/25, tcp/26]}\n  - {name: b, port: [tcp/27]}\n"},
		{"tcp/25", "services:\n  - {name: a, port: [tcp/25, tcp/26]}\n  - {name: b, port: [tcp/25, tcp/27]}\n", "2 found"},
		{"tcp/25", "services:\n  - {name: a, port: [tcp/25, tcp/26], from: $office}\n", "0 found"},
		{"tcp/27", "services:\n  - {name: a, port: [tcp/25, tcp/26]}\n", "0 found"},
		{"198.51.100.7", "rules:\n  - {name: a, from: 198.51.100.0/24, then: drop}\n", "0 found"},
		{"allow 198.51.100.7", "rules:\n  - {name: a, from: [198.51.100.7, 198.51.100.8], then: drop}\n", "0 found"},
		{"tcp/25", "services:\n  - {name: a, port: &p [tcp/25, tcp/26], from: $office}\n  - {name: b, port: *p}\n", "the layout of port"},
	} {
		text := head + row.text
		p, err := policy.Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", row.text, err)
		}
		verb, line := shorthand.Any, row.line
		if first, rest, ok := strings.Cut(line, " "); ok && (first == "deny" || first == "allow") {
			verb, line = shorthand.Verb(first), rest
		}
		r, err := shorthand.Parse(verb, strings.Fields(line))
		if err != nil {
			t.Errorf("%s: %v", row.line, err)
			continue
		}
		found, err := r.FindPart(p)
		if err != nil || len(found) != 1 {
			if row.want != map[int]string{0: "0 found", 2: "2 found"}[len(found)] || err != nil {
				t.Errorf("%s: %d found, %v\n%s", row.line, len(found), err, row.text)
			}
			continue
		}
		got, err := found[0].Remove([]byte(text))
		if err != nil {
			if !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v\n%s", row.line, err, row.text)
			}
			continue
		}
		if diff := cmp.Diff(head+row.want, string(got)); diff != "" {
			t.Errorf("%s: %s", row.line, diff)
		}
		after, err := policy.Parse("policy.yaml", got)
		if err != nil {
			t.Errorf("%s: %v\n%s", row.line, err, got)
		} else if again, err := r.FindPart(after); err != nil || len(again) > 0 {
			t.Errorf("%s: the part is still there: %v, %v\n%s", row.line, again, err, got)
		}
	}
}
