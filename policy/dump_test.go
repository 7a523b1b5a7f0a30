package policy_test

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/floodwall/floodwall/internal/packet"
	"github.com/floodwall/floodwall/policy"
)

// dump writes a policy out, a line for each thing in it, with its position.
func dump(p *policy.Policy) string {
	var b strings.Builder
	for _, d := range p.Devices {
		fmt.Fprintf(&b, "%s device %s\n", at(d.Pos), d.Name)
	}
	fmt.Fprintf(&b, "%s default %s\n", at(p.DefaultPos), p.Default)
	fmt.Fprintf(&b, "checks %s\n", checks(p.Checks))
	for _, s := range p.Sets {
		fmt.Fprintf(&b, "%s set %s%s\n", at(s.Pos), s.Name, source(s))
	}
	for _, r := range p.Rules {
		fmt.Fprintf(&b, "%s rule %s named=%t%s", at(r.Pos), r.Name, r.Named, match(r.Match))
		if not := match(r.Not); not != "" {
			fmt.Fprintf(&b, " not{%s }", not)
		}
		fmt.Fprintf(&b, " then %s\n", r.Then)
	}
	for _, s := range p.Services {
		fmt.Fprintf(&b, "%s service %s port=%v from=%v", at(s.Pos), s.Name, s.Port, s.From)
		if s.Track != policy.TrackAsIs {
			fmt.Fprintf(&b, " %s", s.Track)
		}
		b.WriteString("\n")
	}
	for _, kind := range p.Untracked {
		fmt.Fprintf(&b, "untracked %s\n", map[policy.Traffic]string{policy.Loopback: "loopback"}[kind])
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "%s note: %s\n", at(n.Pos), n.Msg)
	}
	return b.String()
}

func at(p policy.Pos) string { return fmt.Sprintf("%d:%d", p.Line, p.Col) }

// checks lists the names of s.
func checks(s packet.CheckSet) string {
	var names []string
	for c := range packet.NumChecks {
		if s.Has(c) {
			names = append(names, c.String())
		}
	}
	return strings.Join(names, " ")
}

func source(s policy.Set) string {
	text := ""
	if s.Inline != nil {
		text += fmt.Sprintf(" inline=%v", s.Inline)
	}
	if s.File != "" {
		text += " file=" + s.File
	}
	if s.Dynamic != nil {
		text += fmt.Sprintf(" dynamic timeout=%s", s.Dynamic.Timeout)
	}
	if s.Max != 0 {
		text += fmt.Sprintf(" max=%d", s.Max)
	}
	return text
}

// match lists the keys that are not nil.
func match(m policy.Match) string {
	text, v := "", reflect.ValueOf(m)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsNil() {
			text += fmt.Sprintf(" %s=%v", strings.ToLower(v.Type().Field(i).Name), f.Interface())
		}
	}
	return text
}
