package saved

import (
	"slices"
)

// verdicts are the targets with an equal in the policy.
var verdicts = map[string]ActionKind{
	"ACCEPT": ActAccept, "DROP": ActDrop, "REJECT": ActReject, "RETURN": ActReturn,
}

// loggers are the targets that only tell of a packet.
var loggers = []string{"LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "LED"}

// passing are targets after which the next rule is asked, and what they do that the policy does not.
var passing = map[string]string{
	"MARK": Marks, "CONNMARK": Marks, "SECMARK": Marks, "CONNSECMARK": Marks, "CLASSIFY": Marks, "SET": FillsSet,
	"TCPMSS": Changes, "TOS": Changes, "DSCP": Changes, "TTL": Changes, "HL": Changes, "ECN": Changes,
	"TCPOPTSTRIP": Changes, "CHECKSUM": Changes, "IDLETIMER": "sets a timer", "RATEEST": "measures a rate", "TEE": "copies",
}

// resolve finds out which targets of the table at hand are chains: a chain may come behind the rules that lead to it.
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

// jump reads a target.
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

// resolveExtension makes r a rule whose target is an extension.
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

// extension makes r, whose target is an extension, what that does.
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

// swallowing are targets without an equal that let no packet through, or may let none (xtables-addons(8)).
var swallowing = []string{"TARPIT", "DELUDE", "CHAOS", "STEAL", "ECHO", Opaque}

// MayDrop reports whether a rule drops packets, or may do so where that is not known.
func (a Action) MayDrop() bool {
	return a.Kind == ActDrop || a.Kind == ActReject || a.Kind == ActUnknown && slices.Contains(swallowing, a.Target)
}
