package suggest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// MostAttack and MostGood bound the samples of an attack, and of legitimate traffic, that a search looks at.
const (
	MostAttack = 20_000
	MostGood   = 60_000
)

// Input is what a search for rules looks at.
type Input struct {
	Program    *ir.Program     // of the policy; what it drops needs no rule
	World      ir.World        // that its verdicts depend on
	Taken      map[string]bool // names that rules cannot have
	Attack     []Sample        // the traffic of now, what is legitimate among it included
	Good       []Sample        // legitimate traffic; nil: none is known
	Collateral float64         // the most of Good that all rules together may match, as a share
}

// Result is the rules that were found.
type Result struct {
	Passed     int      `json:"passed"`               // packets of the attack that the policy passes: those that were looked at
	Dropped    []Reason `json:"dropped"`              // those that it drops already
	Rules      []Rule   `json:"rules"`                // those that cover most first
	Coverage   Share    `json:"coverage"`             // of the packets that pass, by all rules together
	Collateral *Harm    `json:"collateral,omitempty"` // of the legitimate packets, by all rules; nil without a baseline
}

// Reason is why the policy drops packets of the attack already.
type Reason struct {
	Name    string `json:"name"`
	Packets int    `json:"packets"`
}

// Rule is a rule in the policy's language, and what it would do to the samples, by ir.Eval.
type Rule struct {
	Name       string `json:"name"`
	Text       string `json:"rule"`                 // one line, as it stands under rules
	Before     string `json:"before,omitempty"`     // the rule that passes its packets now, before which it must stand
	Coverage   Share  `json:"coverage"`             // of the packets of the attack that pass
	Collateral *Harm  `json:"collateral,omitempty"` // of the legitimate packets; nil without a baseline
}

// Find finds rules against an attack. Each one is read as a policy reads it, and counted by ir.Eval. One that matches
// nothing, or with which all rules together would match more of the legitimate packets than they may, is left out.
func Find(in Input) (*Result, error) {
	passed, result := in.passed()
	s := &search{attack: passed, good: in.Good, total: len(in.Attack), collateral: in.Collateral}
	if len(passed) > 0 {
		s.run()
	}
	var all []*matcher
	for _, c := range s.rules {
		name := in.name(len(result.Rules) + 1)
		r := Rule{Name: name, Text: c.text(name)}
		m, err := compiled(r.Text)
		if err != nil {
			return nil, fmt.Errorf("suggest: %w", err) // a defect: see TestRules
		}
		one := []*matcher{m}
		r.Coverage, r.Collateral = share(count(one, passed), len(passed)), in.harm(one)
		together := in.harm(append(all, m))
		if r.Coverage.Packets == 0 || together != nil && together.Part() > in.Collateral {
			continue
		}
		r.Before = in.before(m, passed)
		all, result.Rules = append(all, m), append(result.Rules, r)
	}
	result.Coverage, result.Collateral = share(count(all, passed), len(passed)), in.harm(all)
	return result, nil
}

// passed are the packets of the attack that the policy passes.
func (in *Input) passed() (list []Sample, result *Result) {
	result = &Result{Rules: []Rule{}, Dropped: []Reason{}}
	dropped := map[string]int{}
	for _, s := range in.Attack {
		verdict, reason := in.Program.Eval(&s.Packet, in.World)
		if verdict == ir.Pass {
			list = append(list, s)
		} else {
			dropped[in.Program.ReasonName(reason)]++
		}
	}
	result.Passed = len(list)
	for _, name := range frequent(dropped, 1, len(dropped)) {
		result.Dropped = append(result.Dropped, Reason{name, dropped[name]})
	}
	return list, result
}

// name is a name for a rule that nothing in the policy has.
func (in *Input) name(number int) string {
	name := fmt.Sprintf("suggested-%d", number)
	for more := 2; in.Taken[name]; more++ {
		name = fmt.Sprintf("suggested-%d-%d", number, more)
	}
	return name
}

// Harm is the part of the legitimate packets that rules match, and how many senders are concerned: few packets can be all of somebody's.
type Harm struct {
	Share
	Senders   int `json:"senders"`    // of legitimate packets that the rules match. One of IPv6 is a /64.
	OfSenders int `json:"of_senders"` // of all legitimate packets
}

// harm is what some rules would do to the legitimate packets.
func (in *Input) harm(rules []*matcher) *Harm {
	if len(in.Good) == 0 {
		return nil
	}
	harmed, packets := map[netip.Addr]bool{}, 0 // by the sender
	for i := range in.Good {
		s := &in.Good[i]
		matched := slices.ContainsFunc(rules, func(m *matcher) bool { return m.has(s) })
		if matched {
			packets++
		}
		harmed[s.Sender()] = harmed[s.Sender()] || matched
	}
	h := &Harm{Share: share(packets, len(in.Good)), OfSenders: len(harmed)}
	for _, is := range harmed {
		if is {
			h.Senders++
		}
	}
	return h
}

// before is the first rule of the policy that passes packets which a suggested one would drop: behind it, that one would do nothing. It is
// "" when services or the default pass them, which come after the rules.
func (in *Input) before(m *matcher, passed []Sample) string {
	first := len(in.Program.Rules)
	for i := range passed {
		_, reason := in.Program.Eval(&passed[i].Packet, in.World)
		if reason.Kind == ir.ReasonRule && reason.Index < first && m.has(&passed[i]) {
			first = reason.Index
		}
	}
	if first == len(in.Program.Rules) || in.Program.Rules[first].Kind != ir.RuleKindRule {
		return ""
	}
	return in.Program.Rules[first].Name
}

// Measure is what a rule would do to samples of an attack and to legitimate ones.
func Measure(text string, attack, good []Sample) (Rule, error) {
	m, err := compiled(text)
	if err != nil {
		return Rule{}, err
	}
	return Rule{Text: text, Coverage: share(count([]*matcher{m}, attack), len(attack)), Collateral: (&Input{Good: good}).harm([]*matcher{m})}, nil
}

// Together is what rules would do together, likewise.
func Together(texts []string, attack, good []Sample) (Share, *Harm, error) {
	var all []*matcher
	for _, text := range texts {
		m, err := compiled(text)
		if err != nil {
			return Share{}, nil, err
		}
		all = append(all, m)
	}
	return share(count(all, attack), len(attack)), (&Input{Good: good}).harm(all), nil
}
