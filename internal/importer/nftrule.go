package importer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// nftReader is a rule of nft as far as it was read.
type nftReader struct {
	file *nftFile
	head nftHead
	rule rule
	out  []rule

	limited bool // a limit stands before
}

// read takes one statement after the other, and returns the rules that they make.
func (r *nftReader) read() []rule {
	for _, raw := range r.head.Expr {
		var statement map[string]any
		if json.Unmarshal(raw, &statement) != nil || len(statement) == 0 {
			r.unknown("statement " + string(raw))
			continue
		}
		for name, body := range statement {
			r.statement(name, body)
		}
	}
	all := append(r.out, r.rule)
	for i := range all {
		otherPorts(all[i].alts)
	}
	return all
}

func (r *nftReader) unknown(what string) {
	for i := range r.rule.alts {
		r.rule.alts[i] = r.rule.alts[i].withUnknown(what)
	}
}

// nftVerdicts are the statements with an equal that end a rule.
var nftVerdicts = map[string]actionKind{
	"accept": actAccept, "drop": actDrop, "reject": actReject, "return": actReturn, "continue": actNone,
	"jump": actJump, "goto": actGoto,
}

// nftHarmless are statements that change nothing about a packet.
var nftHarmless = []string{"counter", "last", "meter stats", "comment"}

// nftSide are statements after which the rule goes on, and what they do that the policy does not.
var nftSide = map[string]string{
	"mangle": changes, "ct helper": helps, "ct timeout": helps, "ct expectation": helps,
	"dup": "copies packets, and the policy does not", "flow": "forwards packets past the rules, and the policy does not",
	"secmark": marks,
}

// statement reads one statement.
func (r *nftReader) statement(name string, body any) {
	kind, isVerdict := nftVerdicts[name]
	side, isSide := nftSide[name]
	switch {
	case name == "match":
		r.behindLimit()
		op, _ := member(body, "op").(string)
		r.narrow(r.meets(member(body, "left"), op, member(body, "right")))
	case name == "vmap":
		r.behindLimit()
		r.verdictMap(member(body, "key"), member(body, "data"))
	case isVerdict:
		r.decide(nftAction(kind, body))
	case name == "log":
		r.rule.act.logs = true
	case slices.Contains(nftHarmless, name):
	case name == "set" && member(body, "stmt") == nil:
		r.side(fillsSet)
	case name == "set" || name == "meter":
		r.unknown("a limit for each address")
	case name == "limit":
		r.limit(body)
	case name == "notrack":
		r.rule.notrack = true
	case isSide:
		r.side(side)
	case name == "snat" || name == "dnat" || name == "masquerade" || name == "redirect":
		r.decide(action{kind: actUnknown, target: name})
		r.rule.to = nftDestination(body)
	case name == "queue" || name == "synproxy" || name == "tproxy" || name == "fwd":
		r.decide(action{kind: actUnknown, target: name})
	case name == "xt":
		r.unknown(fmt.Sprintf("an extension of iptables (%v), which only iptables-save prints", member(body, "name")))
	default: // quota, ct count, and what later versions add
		r.unknown(name)
	}
}

func (r *nftReader) side(what string) {
	if !slices.Contains(r.rule.side, what) {
		r.rule.side = append(r.rule.side, what)
	}
}

// decide gives the rule its verdict. That it logs, too, stays.
func (r *nftReader) decide(a action) {
	a.logs = r.rule.act.logs
	r.rule.act = a
}

func nftAction(kind actionKind, body any) action {
	target, _ := member(body, "target").(string)
	return action{kind: kind, target: target}
}

// narrow makes the rule ask for any of conds, too.
func (r *nftReader) narrow(conds []cond) {
	var out []cond
	for _, a := range r.rule.alts {
		for _, c := range conds {
			out = append(out, a.and(c))
		}
	}
	r.rule.alts = out
}

// verdictMap makes a rule of each element. No two elements overlap, so their order is free, but the one for all other
// packets comes last.
func (r *nftReader) verdictMap(key, data any) {
	list, ok := listOf(data)
	if name, isName := data.(string); isName {
		if set := r.file.named(r.head, name); set != nil && !set.dynamic {
			list, ok = set.elem, true
		}
	}
	if !ok {
		r.unknown("map " + compact(data))
		r.decide(action{kind: actUnknown, target: "map"})
		return
	}
	var rest []rule
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

// branch is the rule that one element of a verdict map makes.
func (r *nftReader) branch(key, val, verdict any) rule {
	b := nftReader{file: r.file, head: r.head, rule: r.rule, limited: r.limited}
	b.rule.alts = slices.Clone(r.rule.alts)
	if val != "*" {
		if parts, ok := member(key, "concat").([]any); ok {
			b.narrow([]cond{b.tuple(parts, val)})
		} else {
			b.narrow(b.meets(key, "==", val))
		}
	}
	if v, ok := verdict.(map[string]any); ok {
		for name, body := range v {
			b.statement(name, body)
		}
	}
	return b.rule
}
