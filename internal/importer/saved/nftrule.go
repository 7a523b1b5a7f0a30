// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"slices"
)

// nftRuleReader reads a rule of nft. It contains the parts that were read until now.
type nftRuleReader struct {
	file *rulesetFile
	head listObject
	rule Rule
	out  []Rule

	limited bool // the rule has a limit before the current statement
	inner   bool // the rule tests bytes after the L4 header
	opaque  bool // the rule has an extension of iptables whose name nft does not print
}

// read reads the statements in order. It returns the rules that they make.
func (r *nftRuleReader) read() []Rule {
	for _, raw := range r.head.Expr {
		statement, ok := statementOf(raw)
		if !ok {
			r.unknown("statement " + string(raw))
			continue
		}
		for name, body := range statement {
			r.statement(name, body)
		}
	}
	if r.opaque && !r.decides() {
		r.decide(Action{Kind: ActUnknown, Target: Opaque})
	}
	all := append(r.out, r.rule)
	for i := range all {
		otherPorts(all[i].Alts)
		for n, c := range all[i].Alts {
			if r.inner && len(c.Payload) > 0 {
				c = ofInner(c)
			}
			all[i].Alts[n] = c.OfSYN().OfBytes(false)
		}
	}
	return all
}

func (r *nftRuleReader) unknown(what string) {
	for i := range r.rule.Alts {
		r.rule.Alts[i] = r.rule.Alts[i].WithUnknown(what)
	}
}

// nftVerdicts are the statements that end a rule and that have an equivalent in the policy.
var nftVerdicts = map[string]ActionKind{
	"accept": ActAccept, "drop": ActDrop, "reject": ActReject, "return": ActReturn, "continue": ActNone,
	"jump": ActJump, "goto": ActGoto,
}

// harmless are statements that change nothing about a packet.
var harmless = []string{"counter", "last", "meter stats", "comment"}

// sideEffects are the statements that have an effect that the policy does not have, and after which the rule
// continues.
var sideEffects = map[string]string{
	"mangle": Changes, "ct helper": Helps, "ct timeout": Helps, "ct expectation": Helps,
	"dup": "copies packets, and the policy does not", "flow": PastRules,
	"secmark": Marks,
}

// statement reads one statement.
func (r *nftRuleReader) statement(name string, body any) {
	kind, isVerdict := nftVerdicts[name]
	side, isSide := sideEffects[name]
	switch {
	case name == "match":
		r.behindLimit()
		op, _ := member(body, "op").(string)
		r.rule.Narrow(r.meets(member(body, "left"), op, member(body, "right")))
	case name == "vmap":
		r.behindLimit()
		r.verdictMap(member(body, "key"), member(body, "data"))
	case isVerdict:
		r.decide(action(kind, body))
	case name == "log":
		r.rule.Act.Logs = true
	case slices.Contains(harmless, name):
	case name == "set" && member(body, "stmt") == nil:
		r.side(FillsSet)
	case name == "set":
		r.metered(member(body, "elem"), member(body, "stmt"))
	case name == "meter":
		r.metered(member(body, "key"), member(body, "stmt"))
	case name == "limit":
		r.limit(body)
	case name == "notrack":
		r.rule.Notrack = true
	case isSide:
		r.side(side)
	case name == "snat" || name == "dnat" || name == "masquerade" || name == "redirect":
		r.decide(Action{Kind: ActUnknown, Target: name})
		r.rule.To = destination(body)
	case name == "synproxy":
		r.decide(Action{Kind: ActUnknown, Target: name})
		r.rule.Options = nftProxyOptions(body)
	case name == "queue" || name == "tproxy" || name == "fwd":
		r.decide(Action{Kind: ActUnknown, Target: name})
	case name == "xt":
		r.extension(body)
	default: // quota, ct count, and statements of later versions
		r.unknown(name)
	}
}

// nftProxyOptions returns the options of synproxy as those of the iptables target SYNPROXY.
func nftProxyOptions(body any) (list []Token) {
	for _, key := range []string{"wscale", "mss"} {
		if n, ok := member(body, key).(float64); ok {
			list = append(list, Token{Name: "--" + key, Args: []string{fmt.Sprint(n)}})
		}
	}
	return list
}

func (r *nftRuleReader) side(what string) {
	if !slices.Contains(r.rule.Side, what) {
		r.rule.Side = append(r.rule.Side, what)
	}
}

// decide sets the verdict of the rule. If the rule also logs, the verdict keeps this information.
func (r *nftRuleReader) decide(a Action) {
	a.Logs = r.rule.Act.Logs
	r.rule.Act = a
}

func action(kind ActionKind, body any) Action {
	target, _ := member(body, "target").(string)
	return Action{Kind: kind, Target: target}
}

// verdictMap makes a rule of each element. No two elements overlap, so their order does not matter. Only the element for packets that no other
// element matches must come last.
func (r *nftRuleReader) verdictMap(key, data any) {
	list, ok := listOf(data)
	if name, isName := data.(string); isName {
		if set := r.file.named(r.head, name); set != nil && !set.Dynamic {
			list, ok = set.elem, true
		}
	}
	if !ok {
		r.unknown("map " + compact(data))
		r.decide(Action{Kind: ActUnknown, Target: "map"})
		return
	}
	var rest []Rule
	for _, e := range list {
		pair, ok := e.([]any)
		if !ok || len(pair) != 2 {
			r.unknown("the element " + compact(e) + " of a map")
			continue
		}
		val, _ := element(pair[0])
		if branch := r.branch(key, val, pair[1]); val == "*" {
			rest = append(rest, branch)
		} else {
			r.out = append(r.out, branch)
		}
	}
	r.out = append(r.out, rest...)
}

// branch returns the rule for one element of a verdict map.
func (r *nftRuleReader) branch(key, val, verdict any) Rule {
	b := nftRuleReader{file: r.file, head: r.head, rule: r.rule, limited: r.limited}
	b.rule.Alts = slices.Clone(r.rule.Alts)
	if val != "*" {
		if parts, ok := member(key, "concat").([]any); ok {
			b.rule.Narrow([]Cond{b.tuple(parts, val)})
		} else {
			b.rule.Narrow(b.meets(key, "==", val))
		}
	}
	if v, ok := verdict.(map[string]any); ok {
		for name, body := range v {
			b.statement(name, body)
		}
	}
	r.inner = r.inner || b.inner
	return b.rule
}
