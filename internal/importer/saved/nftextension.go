// SPDX-License-Identifier: Apache-2.0

package saved

import "fmt"

// Opaque is the name that is used for a target whose name nft does not print. Such a target may drop.
const Opaque = "a target that nft does not name"

// extension reads an extension of iptables that iptables-nft puts into a rule and for which nft has no statement. It is a match or a
// target, given by its name without its options. Some versions of nft do not print the name.
func (r *nftRuleReader) extension(body any) {
	kind, _ := member(body, "type").(string)
	name, _ := member(body, "name").(string)
	if kind != "target" {
		if name == "" {
			name = "one that nft does not name"
			r.opaque = true
		}
		r.unknown(fmt.Sprintf("an extension of iptables (%s), which only iptables-save prints", name))
		return
	}
	a := Rule{Act: Action{Kind: ActUnknown, Target: name}}
	switch name {
	case "REJECT":
		a.Act.Kind = ActReject
	case "DNAT", "REDIRECT", "NETMAP": // to an address that nft does not print
		a.Act.Target = "dnat"
	case "SYNPROXY": // nft does not print its options
		a.Act.Target = "the target SYNPROXY of iptables"
	default:
		a.extension()
	}
	for _, s := range a.Side {
		r.side(s)
	}
	r.rule.Marks = r.rule.Marks || a.Marks
	if a.Act.Kind != ActNone || a.Act.Logs {
		a.Act.Logs = a.Act.Logs || r.rule.Act.Logs
		if a.Act.Kind == ActNone {
			a.Act.Kind, a.Act.Target = r.rule.Act.Kind, r.rule.Act.Target
		}
		r.rule.Act = a.Act
	}
}

// decides reports whether the rule has a verdict or any other effect.
func (r *nftRuleReader) decides() bool {
	return len(r.out) > 0 || r.rule.Act.Kind != ActNone || r.rule.Act.Logs || len(r.rule.Side) > 0 || r.rule.Notrack
}
