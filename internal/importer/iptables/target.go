package iptables

import (
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// verdicts are the targets with an equal in the policy.
var verdicts = map[string]saved.ActionKind{
	"ACCEPT": saved.ActAccept, "DROP": saved.ActDrop, "REJECT": saved.ActReject, "RETURN": saved.ActReturn,
}

// loggers are the targets that only tell of a packet.
var loggers = []string{"LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "LED"}

// passing are targets after which the next rule is asked, and what they do that the policy does not.
var passing = map[string]string{
	"MARK": saved.Marks, "CONNMARK": saved.Marks, "SECMARK": saved.Marks, "CONNSECMARK": saved.Marks, "CLASSIFY": saved.Marks, "SET": saved.FillsSet,
	"TCPMSS": saved.Changes, "TOS": saved.Changes, "DSCP": saved.Changes, "TTL": saved.Changes, "HL": saved.Changes, "ECN": saved.Changes,
	"TCPOPTSTRIP": saved.Changes, "CHECKSUM": saved.Changes, "IDLETIMER": "sets a timer", "RATEEST": "measures a rate", "TEE": "copies",
}

// resolve finds out which targets of the table at hand are chains: a chain may come behind the rules that lead to it.
func (p *saveFile) resolve() {
	for _, c := range p.table.Order {
		for i := range c.Rules {
			r := &c.Rules[i]
			if r.Act.Kind == saved.ActJump && p.table.Chains[r.Act.Target] == nil {
				resolveExtension(r, p)
			}
		}
	}
	p.recents()
}

// jump reads a target.
func (r *ruleReader) jump(kind saved.ActionKind, name string) {
	if r.rule.Act.Kind != saved.ActNone {
		r.unknown("a second target")
		return
	}
	r.rule.Act = saved.Action{Kind: kind, Target: name}
	if v, ok := verdicts[name]; ok && kind == saved.ActJump {
		r.rule.Act = saved.Action{Kind: v}
	}
}

// resolveExtension makes r a rule whose target is an extension.
func resolveExtension(r *saved.Rule, p *saveFile) {
	name := r.Act.Target
	r.Act = saved.Action{}
	effect, passes := passing[name]
	switch {
	case slices.Contains(loggers, name):
		r.Act.Logs = true
	case name == "NOTRACK" || name == "CT" && r.Has("--notrack"):
		r.Notrack = true
	case name == "CT":
		r.Side = append(r.Side, saved.Helps)
	case passes:
		r.Side = append(r.Side, effect)
		r.Marks = effect == saved.Marks
	default:
		r.Act = saved.Action{Kind: saved.ActUnknown, Target: name}
	}
	if name == "SET" {
		for _, t := range r.Options {
			if s := p.private[t.Args[0]]; s != nil && t.Name == "--add-set" {
				s.Dynamic = true
			}
		}
	}
}
