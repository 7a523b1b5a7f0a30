// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/model/ir"
)

// MostAttack and MostGood are the largest numbers of attack samples and of legitimate samples that a search uses.
const (
	MostAttack = 20_000
	MostGood   = 60_000
)

// Input is the input of a search for rules.
type Input struct {
	Program    *ir.Program     // the running policy; packets that it drops need no rule
	World      ir.World        // the state of the host on which verdicts of the policy depend
	Taken      map[string]bool // names that new rules must not have
	Attack     []Sample        // the present traffic, including its legitimate part
	Good       []Sample        // legitimate traffic; nil: not known
	First      []Sample        // first packets of conversations; a rule that matches one of them is not used
	Collateral float64         // the largest share of Good that all rules together may match
}

// Result contains the found rules.
type Result struct {
	Passed     int      `json:"passed"`               // examined attack packets that the policy passes
	Dropped    []Reason `json:"dropped"`              // examined attack packets that the policy drops already
	Rules      []Rule   `json:"rules"`                // the rule with the most coverage first
	Coverage   Share    `json:"coverage"`             // the share of the passing packets that all rules together match
	Collateral *Harm    `json:"collateral,omitempty"` // the legitimate packets that all rules together match; nil without a baseline
}

// Reason is a rule or check of the policy that already drops packets of the attack.
type Reason struct {
	Name    string `json:"name"`
	Packets int    `json:"packets"`
}

// Rule is a rule in the policy's language, with its effect on the samples by ir.Eval.
type Rule struct {
	*Signature `json:"-"`
	Name       string `json:"name"`
	Text       string `json:"rule"`                 // one line, in the notation of a policy's rules
	Before     string `json:"before,omitempty"`     // the policy's rule that passes the packets of this rule now; the new rule must precede it
	Coverage   Share  `json:"coverage"`             // the share of the passing attack packets that the rule matches
	Collateral *Harm  `json:"collateral,omitempty"` // the legitimate packets that the rule matches; nil without a baseline
	Unlike     string `json:"unlike,omitempty"`     // why the harm of the rule cannot be measured by the legitimate packets: properties that these lack
	SYNs       bool   `json:"syns,omitempty"`       // the rule matches SYNs
}

// Find finds rules against an attack. Each rule is compiled like a rule of a policy, and its matches are counted by ir.Eval. Find drops a rule that
// matches nothing. It also drops a rule if all rules together would match too many legitimate packets.
func Find(in Input) (*Result, error) {
	passed, result := in.passed()
	s := &search{attack: passed, good: in.spared(), total: len(in.Attack), collateral: in.Collateral}
	if len(passed) > 0 {
		s.run()
	}
	var all []*Signature
	for _, c := range s.rules {
		name := in.name(len(result.Rules) + 1)
		signature, err := newSignature(c.match())
		if err != nil {
			return nil, fmt.Errorf("suggest: %w", err) // a defect of this package: see TestRules
		}
		one := []*Signature{signature}
		if len(in.Good) == 0 && signature.ofClients() {
			continue // no test distinguishes the attack from clients' packets
		}
		r := Rule{Signature: signature, Name: name, Text: signature.As(name, true).Line(), Unlike: signature.unlike(in.Good), SYNs: signature.MatchesSYN()}
		r.Coverage, r.Collateral = share(count(one, passed), len(passed)), in.harm(one)
		together := in.harm(append(all, signature))
		if r.Coverage.Packets == 0 || together != nil && together.Part() > in.Collateral {
			continue
		}
		r.Before = in.before(signature, passed)
		all, result.Rules = append(all, signature), append(result.Rules, r)
	}
	result.Coverage, result.Collateral = share(count(all, passed), len(passed)), in.harm(all)
	return result, nil
}

// spared returns the legitimate packets with their weights in the search. There are few first packets of conversations. So each is repeated so often
// that a rule that matches one of them exceeds the limit of harm.
func (in *Input) spared() []Sample {
	if len(in.First) == 0 || len(in.Good) == 0 {
		return in.Good
	}
	all := slices.Clone(in.Good)
	for range 1 + int(2*in.Collateral*float64(len(in.Good))) {
		all = append(all, in.First...)
	}
	return all[:min(len(all), MostGood)]
}

// passed returns the packets of the attack that the policy passes.
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

// name returns a rule name that the policy does not use.
func (in *Input) name(number int) string {
	name := fmt.Sprintf("suggested-%d", number)
	for more := 2; in.Taken[name]; more++ {
		name = fmt.Sprintf("suggested-%d-%d", number, more)
	}
	return name
}

// Harm is the legitimate packets that rules match, and the number of their senders. The senders matter because a few packets can all be from one
// sender.
type Harm struct {
	Share
	Senders   int `json:"senders"`    // number of senders of the legitimate packets that the rules match. An IPv6 /64 is one sender.
	OfSenders int `json:"of_senders"` // number of senders of all legitimate packets
	Cut       int `json:"cut"`        // number of senders that lose more than half of their packets to the rules
}

// harm returns the effect of rules on the legitimate packets.
func (in *Input) harm(rules []*Signature) *Harm {
	if len(in.Good) == 0 {
		return nil
	}
	type sent struct{ all, matched int }
	by, packets := map[netip.Addr]sent{}, 0
	for i := range in.Good {
		s := &in.Good[i]
		matched := slices.ContainsFunc(rules, func(g *Signature) bool { return g.Has(s) })
		if matched {
			packets++
		}
		n := by[s.Sender()]
		if n.all++; matched {
			n.matched++
		}
		by[s.Sender()] = n
	}
	h := &Harm{Share: share(packets, len(in.Good)), OfSenders: len(by)}
	for _, n := range by {
		if n.matched > 0 {
			h.Senders++
		}
		if 2*n.matched > n.all {
			h.Cut++
		}
	}
	return h
}

// before returns the name of the first policy rule that passes packets which a suggested rule should drop. After that rule, the suggested rule would
// have no effect. The name is "" when services or the default pass the packets, because these come after all rules.
func (in *Input) before(g *Signature, passed []Sample) string {
	first := len(in.Program.Rules)
	for i := range passed {
		_, reason := in.Program.Eval(&passed[i].Packet, in.World)
		if reason.Kind == ir.ReasonRule && reason.Index < first && g.Has(&passed[i]) {
			first = reason.Index
		}
	}
	if first == len(in.Program.Rules) || in.Program.Rules[first].Kind != ir.RuleKindRule {
		return ""
	}
	return in.Program.Rules[first].Name
}

// Measure returns a rule with its effect on attack samples and on legitimate samples.
func Measure(g *Signature, name string, attack, good []Sample) Rule {
	one := []*Signature{g}
	return Rule{Signature: g, Name: name, Text: g.As(name, true).Line(), Coverage: share(count(one, attack), len(attack)), Collateral: (&Input{Good: good}).harm(one)}
}

// Together returns the effect of several rules together.
func Together(rules []Rule, attack, good []Sample) (Share, *Harm) {
	all := make([]*Signature, len(rules))
	for i, r := range rules {
		all[i] = r.Signature
	}
	return share(count(all, attack), len(attack)), (&Input{Good: good}).harm(all)
}
