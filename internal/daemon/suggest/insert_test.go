// SPDX-License-Identifier: Apache-2.0

package suggest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
)

// TestInsert adds rules to policies of all layouts. The existing text must not change, byte for byte.
func TestInsert(t *testing.T) {
	t.Parallel()
	first := suggest.Rule{Name: "new-1", Text: "{name: new-1, proto: udp, observe: true, then: drop}", Before: "time"}
	last := suggest.Rule{Name: "new-2", Text: "{name: new-2, proto: tcp, observe: true, then: drop}"}
	for _, row := range []struct{ name, text, want string }{
		{"in the middle and at the end", `devices: [eth0] # outside
rules:
- {name: a, from: 10.0.0.0/8, then: drop}   # keep
- name: time
  sport: udp/123
  then: pass

# services
services:
  - {name: web, port: tcp/80}
`, `devices: [eth0] # outside
rules:
- {name: a, from: 10.0.0.0/8, then: drop}   # keep
# why new-1
- {name: new-1, proto: udp, observe: true, then: drop}
- name: time
  sport: udp/123
  then: pass
# why new-2
- {name: new-2, proto: tcp, observe: true, then: drop}

# services
services:
  - {name: web, port: tcp/80}
`},
		{"no rules", "devices: [eth0]\nservices:\n  - {name: web, port: tcp/80}\n", `devices: [eth0]
rules:
  # why new-1
  - {name: new-1, proto: udp, observe: true, then: drop}
  # why new-2
  - {name: new-2, proto: tcp, observe: true, then: drop}
services:
  - {name: web, port: tcp/80}
`},
		{"nothing else", "devices: [eth0]", `devices: [eth0]
rules:
  # why new-1
  - {name: new-1, proto: udp, observe: true, then: drop}
  # why new-2
  - {name: new-2, proto: tcp, observe: true, then: drop}`},
		{"at the end of the file", "devices: [eth0]\nrules:\n    - {name: time, sport: udp/123,\n       then: pass}", `devices: [eth0]
rules:
    # why new-1
    - {name: new-1, proto: udp, observe: true, then: drop}
    - {name: time, sport: udp/123,
       then: pass}
    # why new-2
    - {name: new-2, proto: tcp, observe: true, then: drop}`},
		{"in brackets", "devices: [eth0]\nrules: [{name: time, sport: udp/123, then: pass}]\n", ""},
		{"an empty list", "devices: [eth0]\nrules: []\n", ""},
	} {
		p, err := policy.Parse("policy.yaml", []byte(row.text))
		check(t, err)
		got, err := suggest.Insert(row.text, p, []suggest.Rule{first, last}, func(r suggest.Rule) string { return "why " + r.Name })
		if row.want == "" {
			if layout := new(edit.LayoutError); !errors.As(err, &layout) || !strings.Contains(layout.Hint(), "by hand") {
				t.Errorf("%s: %v\n%s", row.name, err, got)
			}
			continue
		}
		if err != nil || got != row.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", row.name, err, got, row.want)
		}
	}
}
