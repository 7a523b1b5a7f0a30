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
	notracks  = "takes packets out of connection tracking, and no rule does: write a service with track: false"
	helps     = "sets how packets are tracked, and the policy does not"
	translate = "translates addresses, and the policy does not: it sees packets as they came in; keep it where it is"
)

// jump reads a target and all behind it.
func (r *ruleReader) jump(_ bool, args []string) {
	name := args[0]
	rest := r.words
	r.words = r.comments(rest)
	if c := r.file.table.chains[name]; c != nil {
		r.rule.act = action{kind: actJump, target: name}
		return
	}
	if v, ok := verdicts[name]; ok {
		r.rule.act = action{kind: v}
		return
	}
	effect, passes := passing[name]
	switch {
	case slices.Contains(loggers, name):
		r.rule.act = action{logs: true}
	case name == "NOTRACK" || name == "CT" && slices.Contains(rest, "--notrack"):
		r.rule.side = append(r.rule.side, notracks)
	case name == "CT":
		r.rule.side = append(r.rule.side, helps)
	case passes:
		r.rule.side = append(r.rule.side, effect)
	default:
		r.rule.act = action{kind: actUnknown, target: name}
	}
	if name == "SET" {
		r.fills(rest)
	}
}

// fills notes that a set is filled while the rules run.
func (r *ruleReader) fills(words []string) {
	if i := slices.Index(words, "--add-set"); i >= 0 && i+1 < len(words) {
		if s := r.file.private[words[i+1]]; s != nil {
			s.dynamic = true
		}
	}
}

func (r *ruleReader) goTo(_ bool, args []string) {
	r.rule.act = action{kind: actGoto, target: args[0]}
}

// comments are the words from the comment on, if one stands behind the target.
func (r *ruleReader) comments(words []string) []string {
	for i := range words {
		if words[i] == "-m" && i+1 < len(words) && words[i+1] == "comment" {
			return words[i:]
		}
	}
	return nil
}
