// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"slices"
)

// verdicts are the targets with an equivalent in the policy.
var verdicts = map[string]ActionKind{
	"ACCEPT": ActAccept, "DROP": ActDrop, "REJECT": ActReject, "RETURN": ActReturn,
}

// loggers are the targets that only log a packet.
var loggers = []string{"LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "LED"}

// passing are targets after which the next rule is evaluated, with their effects that the policy lacks.
var passing = map[string]string{
	"MARK": Marks, "CONNMARK": Marks, "SECMARK": Marks, "CONNSECMARK": Marks, "CLASSIFY": Marks, "SET": FillsSet,
	"TCPMSS": Changes, "TOS": Changes, "DSCP": Changes, "TTL": Changes, "HL": Changes, "ECN": Changes,
	"TCPOPTSTRIP": Changes, "CHECKSUM": Changes, "IDLETIMER": "sets a timer", "RATEEST": "measures a rate", "TEE": "copies",
}

// resolve finds the targets of the current table that are chains. It runs at the end because a chain may be defined after the rules that jump to it.
func (p *saveFile) resolve() {
	for _, c := range p.table.Order {
		for i := range c.Rules {
			r := &c.Rules[i]
			if r.Act.Kind == ActJump && p.table.Chains[r.Act.Target] == nil {
				resolveExtension(r, p)
			}
		}
	}
	p.recents()
}

// jump parses a target.
func (r *iptablesRuleReader) jump(kind ActionKind, name string) {
	if r.rule.Act.Kind != ActNone {
		r.unknown("a second target")
		return
	}
	r.rule.Act = Action{Kind: kind, Target: name}
	if v, ok := verdicts[name]; ok && kind == ActJump {
		r.rule.Act = Action{Kind: v}
	}
}

// resolveExtension resolves a target that is an extension.
func resolveExtension(r *Rule, p *saveFile) {
	if r.Act.Target == "SET" {
		for _, t := range r.Options {
			if s := p.private[t.Args[0]]; s != nil && t.Name == "--add-set" {
				s.Dynamic = true
			}
		}
	}
	r.extension()
}

// extension gives r, whose target is an extension, the effect of that target.
func (r *Rule) extension() {
	name := r.Act.Target
	r.Act = Action{}
	effect, passes := passing[name]
	switch {
	case slices.Contains(loggers, name):
		r.Act.Logs = true
	case name == "NOTRACK" || name == "CT" && r.Has("--notrack"):
		r.Notrack = true
	case name == "CT":
		r.Side = append(r.Side, Helps)
	case passes:
		r.Side = append(r.Side, effect)
		r.Marks = effect == Marks
	default:
		r.Act = Action{Kind: ActUnknown, Target: name}
	}
}

// swallowing are targets without equivalent that drop all packets, or may drop some (xtables-addons(8)).
var swallowing = []string{"TARPIT", "DELUDE", "CHAOS", "STEAL", "ECHO", Opaque}

// MayDrop reports whether a rule drops packets, or whether it is unknown if it drops them.
func (a Action) MayDrop() bool {
	return a.Kind == ActDrop || a.Kind == ActReject || a.Kind == ActUnknown && slices.Contains(swallowing, a.Target)
}
