package doctor

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/display"
)

// From so many packets on the place of a rule is worth a change.
const manyPackets = 10000

// savedRules judges how rules of other firewalls stand to each other: what is kept from connection tracking in one direction only, SYNPROXY
// without its notrack, drops that could come earlier, and lists whose hits come late.
func savedRules(_ context.Context, h *host) []Finding {
	rules, err := h.saved()
	var found []Finding
	if err != nil {
		found = append(found, unseen("saved-rules", err))
	}
	return append(found, oneWay(rules), unprepared(rules), dropsLate(rules), hitsLate(rules))
}

var rulePort = regexp.MustCompile(`(?:--)?([sd])ports? (\{[^}]*\}|[^\s{]\S*)`)

// port is the direction and the port of a rule: "d" and "53"; both are "" when it names none.
func (r savedRule) port() (side, port string) {
	m := rulePort.FindStringSubmatch(r.text)
	if m == nil {
		return "", ""
	}
	return m[1], m[2]
}

// oneWay finds what is kept out of conntrack when it comes in, and whose answers get an entry.
func oneWay(rules []savedRule) Finding {
	f := Finding{ID: "notrack-one-way", Severity: Warning, Evidence: "no rule keeps one direction alone out of connection tracking (from nft and iptables-save)"}
	rules = slices.DeleteFunc(slices.Clone(rules), func(r savedRule) bool { return !r.untracks() })
	if slices.ContainsFunc(rules, func(r savedRule) bool { return r.hook == "" }) { // what leads there is not known
		return f.healthy()
	}
	for _, r := range rules {
		side, port := r.port()
		if r.hook != "prerouting" || side == "s" || synOnly(r) || r.word(`-i lo`, `iif "lo"`, `iifname "lo"`) {
			continue
		}
		answered := func(o savedRule) bool {
			otherSide, other := o.port()
			return o.hook == "output" && other == "" || otherSide == "s" && other == port
		}
		if slices.ContainsFunc(rules, answered) {
			continue
		}
		f.Evidence = fmt.Sprintf("the rule %q of table %s keeps packets that come in out of connection tracking, and no rule of the hook output those that answer "+
			"(from nft and iptables-save)", r.text, r.table)
		f.Cost = "each answer of this host gets an entry: the table fills as if there were no such rule, and each packet that is sent pays for tracking"
		return f.command(r.counterpart(port)...)
	}
	return f.healthy()
}

// synOnly reports whether a rule is about the SYNs of SYNPROXY, whose other packets are tracked.
func synOnly(r savedRule) bool {
	return r.word("--syn", "--tcp-flags FIN,SYN,RST,ACK SYN") || strings.Contains(r.text, "tcp flags")
}

// counterpart is the command that keeps the answers out of conntrack too.
func (r savedRule) counterpart(port string) []string {
	proto := "udp"
	if r.word("tcp", "-p tcp") {
		proto = "tcp"
	}
	if r.iptables {
		match := "-p " + proto
		if port != "" {
			match += " --sport " + port
		}
		if strings.Contains(port, ",") {
			match = "-p " + proto + " -m multiport --sports " + port
		}
		return []string{"iptables -t raw -A OUTPUT " + match + " -j CT --notrack"}
	}
	match := "meta l4proto " + proto
	if port != "" {
		match = proto + " sport " + port
	}
	return []string{
		"nft add table inet answers", "nft add chain inet answers out '{ type filter hook output priority raw; }'",
		"nft add rule inet answers out '" + match + " notrack'",
	}
}

// unprepared finds SYNPROXY whose SYNs are tracked: it gets none of them then.
func unprepared(rules []savedRule) Finding {
	f := Finding{ID: "synproxy-notrack", Severity: Warning, Evidence: "no SYNPROXY is without its notrack (from nft and iptables-save)"}
	i := slices.IndexFunc(rules, savedRule.synproxies)
	if i < 0 || slices.ContainsFunc(rules, func(r savedRule) bool { return r.untracks() && (r.hook == "prerouting" || r.hook == "") }) {
		return f.healthy()
	}
	f.Evidence = fmt.Sprintf("the rule %q of table %s is there, and no rule before conntrack keeps its SYNs untracked (from nft and iptables-save)", rules[i].text, rules[i].table)
	f.Cost = "a SYN gets an entry before SYNPROXY sees it: a SYN flood fills the table, and a rule that asks for `untracked` or `invalid` never gets it"
	_, port := rules[i].port()
	match := ""
	if rules[i].iptables {
		if port != "" {
			match = " --dport " + port
		}
		return f.command("iptables -t raw -A PREROUTING -p tcp" + match + " --syn -j CT --notrack")
	}
	if port != "" {
		match = "tcp dport " + port + " "
	}
	return f.command("nft add table inet syns", "nft add chain inet syns pre '{ type filter hook prerouting priority raw; }'",
		"nft add rule inet syns pre '"+match+"tcp flags syn / fin,syn,rst,ack notrack'")
}

// asksState are words of rules that need what is known only behind conntrack and routing.
var asksState = regexp.MustCompile(`\bct |conntrack|--state|-m state|-m recent|-o \S|\boif|connlimit|-m owner|skuid|-m mark|\bmark\b`)

// dropsLate finds the rule of the filter stage that drops most packets for what raw could see.
func dropsLate(rules []savedRule) Finding {
	f := Finding{ID: "drops-late", Severity: Note, Evidence: "no rule at filter drops many packets that raw could drop (from the counters of nft and iptables-save)"}
	var most savedRule
	for _, r := range rules {
		late := r.hook == "input" || r.hook == "forward"
		if late && r.drops() && r.packets > most.packets && !asksState.MatchString(r.text) {
			most = r
		}
	}
	if most.packets < manyPackets {
		return f.healthy()
	}
	f.Evidence = fmt.Sprintf("the rule %q of chain %s has dropped %s packets behind routing and connection tracking (from its counter)",
		most.text, most.chain, display.Count(most.packets))
	f.Numbers = map[string]uint64{"packets": most.packets}
	f.Cost = "each of them paid for routing and for " + trackingCost + " of tracking before it was dropped"
	return f.advice("put the rule at the hook prerouting, priority raw (iptables: table raw), if no rule before it passes its packets; Floodwall's policies do so by themselves")
}

// hitsLate finds a chain most of whose packets go through many rules before one matches.
func hitsLate(rules []savedRule) Finding {
	const long = 50
	f := Finding{ID: "rules-order", Severity: Note, Evidence: "no list of rules has most of its hits late (from the counters of nft and iptables-save)"}
	var hits, tested, place, busiest uint64
	top := 0
	judge := func(chain []savedRule) bool {
		return len(chain) >= long && hits >= manyPackets && tested/hits > uint64(len(chain))/2 && tested/hits >= long/2
	}
	for at := 0; at < len(rules); {
		end := at
		hits, tested, busiest, place = 0, 0, 0, 0
		for ; end < len(rules) && rules[end].table == rules[at].table && rules[end].chain == rules[at].chain && rules[end].iptables == rules[at].iptables; end++ {
			n, position := rules[end].packets, uint64(end-at+1)
			hits, tested = hits+n, tested+n*position
			if n > busiest {
				busiest, place, top = n, position, end
			}
		}
		if judge(rules[at:end]) {
			f.Evidence = fmt.Sprintf("a packet that matches in chain %s goes through %d of %d rules first; most match rule %d: %q (from the counters)",
				rules[at].chain, tested/hits, end-at, place, rules[top].text)
			f.Numbers = map[string]uint64{"rules": uint64(end - at), "mean": tested / hits, "busiest": place}
			f.Cost = fmt.Sprintf("about %.0f ns for each such packet", nftRule*float64(tested/hits))
			return f.advice("move this rule to the front if no rule before it matches the same packets, or let `floodwall import` make sets of the list")
		}
		at = end
	}
	return f.healthy()
}
