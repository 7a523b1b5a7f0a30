package importer

import "slices"

// verdicts are the targets with an equal in the policy.
var verdicts = map[string]actionKind{
	"ACCEPT": actAccept, "DROP": actDrop, "REJECT": actReject, "RETURN": actReturn,
}

// loggers are the targets that only tell of a packet.
var loggers = []string{"LOG", "NFLOG", "ULOG", "TRACE", "AUDIT", "LED"}

// passing are targets after which the next rule is asked, and what they do that the policy does not.
var passing = map[string]string{
	"MARK": marks, "CONNMARK": marks, "SECMARK": marks, "CONNSECMARK": marks, "CLASSIFY": marks, "SET": fillsSet,
	"TCPMSS": changes, "TOS": changes, "DSCP": changes, "TTL": changes, "HL": changes, "ECN": changes,
	"TCPOPTSTRIP": changes, "CHECKSUM": changes, "IDLETIMER": "sets a timer", "RATEEST": "measures a rate", "TEE": "copies",
}

// What rules do that no policy does. The words follow `LINE: RULE:`.
const (
	marks     = "marks packets, and the policy does not"
	changes   = "changes packets, and the policy does not: rules see them as they came in"
	fillsSet  = "fills a set from packets, and the policy does not"
	notracks  = "takes packets out of connection tracking, and only a service with track: false does, for all packets to its port"
	helps     = "sets how packets are tracked, and the policy does not"
	translate = "translates addresses, and the policy does not: it sees packets as they came in; keep it where it is"
)

// resolve finds out which targets of the table at hand are chains: a chain may come behind the rules that lead to it.
func (p *iptablesFile) resolve() {
	for _, c := range p.table.order {
		for i := range c.rules {
			r := &c.rules[i]
			if r.act.kind == actJump && p.table.chains[r.act.target] == nil {
				r.extension(p)
			}
		}
	}
	p.recents()
}

// jump reads a target.
func (r *ruleReader) jump(kind actionKind, name string) {
	if r.rule.act.kind != actNone {
		r.unknown("a second target")
		return
	}
	r.rule.act = action{kind: kind, target: name}
	if v, ok := verdicts[name]; ok && kind == actJump {
		r.rule.act = action{kind: v}
	}
}

// extension makes r a rule whose target is an extension.
func (r *rule) extension(p *iptablesFile) {
	name := r.act.target
	r.act = action{}
	effect, passes := passing[name]
	switch {
	case slices.Contains(loggers, name):
		r.act.logs = true
	case name == "NOTRACK" || name == "CT" && r.has("--notrack"):
		r.notrack = true
	case name == "CT":
		r.side = append(r.side, helps)
	case passes:
		r.side = append(r.side, effect)
		r.marks = effect == marks
	default:
		r.act = action{kind: actUnknown, target: name}
	}
	if name == "SET" {
		for _, t := range r.options {
			if s := p.private[t.args[0]]; s != nil && t.name == "--add-set" {
				s.dynamic = true
			}
		}
	}
}

// has reports whether an option of the target is given.
func (r *rule) has(option string) bool {
	return slices.ContainsFunc(r.options, func(t token) bool { return t.name == option })
}

// argument is the argument of an option of the target, or "".
func (r *rule) argument(option string) string {
	for _, t := range r.options {
		if t.name == option && len(t.args) > 0 {
			return t.args[0]
		}
	}
	return ""
}
