package suggest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/match"
	"github.com/floodwall/floodwall/policy"
)

// order is that of the keys in a rule.
var order = []string{"family", "from", "to", "proto", "fragment", "sport", "port", "flags", "icmp", "length", "ttl", "dscp", "dns", "payload"}

// text is a rule in one line, as it stands under rules.
func (c conjunction) text(name string) string {
	parts := map[string][]string{}
	for _, t := range c.tests {
		key, part, _ := strings.Cut(t.key, ".")
		if part == "type" || part == "name" {
			parts[key] = append(parts[key], part+": "+t.value)
		} else {
			parts[key] = append(parts[key], t.value)
		}
	}
	if parts["dns"] != nil && parts["port"] == nil {
		parts["port"] = []string{"udp/53"}
	}
	if parts["sport"] != nil || parts["port"] != nil || parts["flags"] != nil || parts["icmp"] != nil {
		delete(parts, "proto") // these say it
	}
	line := "{name: " + name
	for _, key := range order {
		switch list := parts[key]; {
		case list == nil:
		case key == "dns":
			line += ", dns: {" + strings.Join(list, ", ") + "}"
		case key == "payload":
			line += ", payload: {at: " + listText(list) + "}"
		default:
			line += ", " + key + ": " + list[0]
		}
	}
	return line + ", observe: true, then: drop}"
}

// matcher is a rule as the policy's language means it.
type matcher struct{ program *ir.Program }

// compiled reads a rule as a policy would. It is an error when the language has no such rule, or when nothing can match it.
func compiled(rule string) (*matcher, error) {
	p, err := policy.Parse("suggested rule", []byte("devices: [eth0]\ndefault: pass\nchecks: off\nrules:\n  - "+rule+"\n"))
	if err != nil {
		return nil, err
	}
	program, _, err := compile.Lower(p)
	if err != nil {
		return nil, err
	}
	for _, r := range program.Rules {
		if field, impossible := match.Impossible(r); impossible {
			return nil, fmt.Errorf("rule %s: no packet has such a %v", rule, field)
		}
	}
	return &matcher{program}, nil
}

// has reports whether the rule matches a packet, by ir.Eval.
func (m *matcher) has(s *Sample) bool {
	matched := false
	m.program.Eval(&s.Packet, ir.World{Observe: func(r ir.Reason) { matched = matched || r.Kind == ir.ReasonRule }})
	return matched
}

// count counts the samples that any of some rules matches.
func count(rules []*matcher, samples []Sample) (n int) {
	for i := range samples {
		if slices.ContainsFunc(rules, func(m *matcher) bool { return m.has(&samples[i]) }) {
			n++
		}
	}
	return n
}

// Matcher reports of samples whether a rule of a Result matches them, by ir.Eval.
func Matcher(rule string) (func(*Sample) bool, error) {
	m, err := compiled(rule)
	if err != nil {
		return nil, err
	}
	return func(s *Sample) bool {
		verdict, _ := m.program.Eval(&s.Packet, ir.World{})
		return verdict == ir.Drop || m.has(s)
	}, nil
}
