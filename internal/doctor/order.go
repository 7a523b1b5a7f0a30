// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// manyPackets is the number of packets from which moving a rule is worthwhile.
const manyPackets = 10000

// savedRules examines the order of other firewalls' rules. It finds packets that bypass conntrack in one direction only, SYNPROXY rules without a
// notrack rule, rules that could drop packets earlier, and chains in which most packets match late.
func savedRules(_ context.Context, h *host) []Finding {
	rules, err := h.saved()
	var found []Finding
	if err != nil {
		found = append(found, unseen("saved-rules", err))
	}
	return append(found, oneWay(rules), unprepared(rules), dropsLate(rules), hitsLate(rules))
}

// oneWay finds rules whose packets bypass conntrack in one direction while the replies are tracked.
func oneWay(rules []savedRule) Finding {
	f := Finding{ID: "notrack-one-way", Severity: Warning, Evidence: "no rule keeps one direction alone out of connection tracking (from nft and iptables-save)"}
	routes, all := routesOf(rules, savedRule.untracks)
	if !all { // it is unknown which packets reach a rule
		return f.healthy()
	}
	for _, r := range routes {
		side, ports := r.ports()
		if r.Hook != "prerouting" || side == "s" || synOnly(r) {
			continue
		}
		if r.word(`-i lo`, `iif "lo"`, `iifname "lo"`) {
			if loopsTracked(r, routes) {
				return loopback(f, r)
			}
			continue
		}
		var answered portSpans
		for _, o := range routes {
			if otherSide, other := o.ports(); o.meets(r) && (otherSide == "s" || o.Hook == "output" && other.all()) {
				answered = append(answered, other...)
			}
		}
		if side != "" && ports.all() && answered != nil { // the ports are not written as numbers
			continue
		}
		if left := ports.without(answered); len(left) > 0 {
			f.Evidence = fmt.Sprintf("the rule %q of table %s%s keeps packets that come in out of connection tracking, and no rule of the hook output those that answer "+
				"(from nft and iptables-save)", r.Text, r.Table, r.from())
			f.Cost = "each answer of this host gets an entry: the table fills as if there were no such rule, and each packet that is sent pays for tracking"
			return f.command(r.counterpart(left)...)
		}
	}
	return f.healthy()
}

// loopsTracked reports whether packets of a rule for incoming packets are already tracked on the loopback device. Packets of the host to itself pass
// the hook output first. Conntrack does not process a packet again that it has seen there (nf_conntrack_in of the kernel).
func loopsTracked(r savedRule, routes []savedRule) bool {
	for _, o := range routes {
		if o.Hook == "output" && o.meets(r) && (o.word(`-o lo`, `oif "lo"`, `oifname "lo"`) || !o.word("-o", "oif", "oifname")) {
			return false
		}
	}
	return true
}

func loopback(f Finding, r savedRule) Finding {
	f.Evidence = fmt.Sprintf("the rule %q of table %s%s is for packets that come in on lo, and no rule of the hook output is for those that leave there (from nft and iptables-save)",
		r.Text, r.Table, r.from())
	f.Cost = "the rule does nothing: what this host sends to itself has its entry before it comes in"
	return f.command(r.notrack("loop", "out", "output", " -o lo"+r.proto().iptables(), `oif "lo" `+r.proto().nft("", portSpans{anyPort}))...)
}

// notrack returns the commands that add a rule which exempts packets from conntrack. iptables and nft are the matches of the rule in both syntaxes.
// With nft, the rule gets a table and a chain of its own.
func (r savedRule) notrack(table, chain, hook, iptables, nft string) []string {
	if r.Iptables {
		return []string{r.tool() + " -t raw -A " + strings.ToUpper(hook) + iptables + " -j CT --notrack"}
	}
	return []string{
		"nft add table " + r.Family + " " + table, "nft add chain " + r.Family + " " + table + " " + chain + " '{ type filter hook " + hook + " priority raw; }'",
		"nft add rule " + r.Family + " " + table + " " + chain + " '" + nft + "notrack'",
	}
}

// synOnly reports whether a rule matches only SYNs for SYNPROXY. Other packets of these connections are tracked.
func synOnly(r savedRule) bool {
	return r.word("--syn", "--tcp-flags FIN,SYN,RST,ACK SYN") || strings.Contains(r.whole().Text, "tcp flags")
}

// counterpart returns the commands that also exempt the replies from these ports from conntrack.
func (r savedRule) counterpart(ports portSpans) []string {
	return r.notrack("answers", "out", "output", r.proto().iptables()+ports.iptables("s"), r.proto().nft("sport", ports))
}

// unprepared finds SYNPROXY rules whose SYNs are tracked, so that they do not reach SYNPROXY.
func unprepared(rules []savedRule) Finding {
	f := Finding{ID: "synproxy-notrack", Severity: Warning, Evidence: "no SYNPROXY is without its notrack (from nft and iptables-save)"}
	untracking, all := routesOf(rules, savedRule.untracks)
	if !all {
		return f.healthy()
	}
	proxies, _ := routesOf(rules, savedRule.synproxies)
	for _, r := range proxies {
		_, ports := r.ports()
		var untracked portSpans
		for _, o := range untracking {
			if side, other := o.ports(); o.Hook == "prerouting" && side != "s" && o.meets(r) && o.proto() != udp {
				untracked = append(untracked, other...)
			}
		}
		if ports.all() && untracked != nil { // the rules before conntrack select the ports
			continue
		}
		if left := ports.without(untracked); len(left) > 0 {
			f.Evidence = fmt.Sprintf("the rule %q of table %s%s is there, and no rule before conntrack keeps its SYNs untracked (from nft and iptables-save)",
				r.Text, r.Table, r.from())
			f.Cost = "a SYN gets an entry before SYNPROXY sees it: a SYN flood fills the table, and a rule that asks for `untracked` or `invalid` never gets it"
			return f.command(r.untrackSYNs(left)...)
		}
	}
	return f.healthy()
}

// untrackSYNs returns the commands that exempt SYNs to these ports from conntrack.
func (r savedRule) untrackSYNs(ports portSpans) []string {
	match := ""
	if !ports.all() {
		match = tcp.nft("dport", ports)
	}
	return r.notrack("syns", "pre", "prerouting", " -p tcp"+ports.iptables("d")+" --syn", match+"tcp flags syn / fin,syn,rst,ack ")
}

// asksState matches tests in rules that are possible only after conntrack or routing.
var asksState = regexp.MustCompile(`\bct |conntrack|--state|-m state|-m recent|-o \S|\boif|connlimit|-m owner|skuid|-m mark|\bmark\b`)

// dropsLate finds the rule at filter that drops the most packets although a rule at raw could drop them.
func dropsLate(rules []savedRule) Finding {
	f := Finding{ID: "drops-late", Severity: Note, Evidence: "no rule at filter drops many packets that raw could drop (from the counters of nft and iptables-save)"}
	var most savedRule
	for _, r := range rules {
		late := r.Hook == "input" || r.Hook == "forward"
		if late && r.drops() && r.Packets > most.Packets && !asksState.MatchString(r.Text) {
			most = r
		}
	}
	if most.Packets < manyPackets {
		return f.healthy()
	}
	f.Evidence = fmt.Sprintf("the rule %q of chain %s has dropped %s packets behind routing and connection tracking (from its counter)",
		most.Text, most.Chain, wording.Count(most.Packets))
	f.Numbers = map[string]uint64{"packets": most.Packets}
	f.Cost = "each of them paid for routing and for " + trackingCost + " of tracking before it was dropped"
	return f.advice("put the rule at the hook prerouting, priority raw (iptables: table raw), if no rule before it passes its packets; Floodwall's policies do so by themselves")
}

// hitsLate finds a chain in which most packets pass many rules before one matches.
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
		for ; end < len(rules) && rules[end].Table == rules[at].Table && rules[end].Chain == rules[at].Chain && rules[end].Iptables == rules[at].Iptables; end++ {
			n, position := rules[end].Packets, uint64(end-at+1)
			hits, tested = hits+n, tested+n*position
			if n > busiest {
				busiest, place, top = n, position, end
			}
		}
		if judge(rules[at:end]) {
			f.Evidence = fmt.Sprintf("a packet that matches in chain %s goes through %d of %d rules first; most match rule %d: %q (from the counters)",
				rules[at].Chain, tested/hits, end-at, place, rules[top].Text)
			f.Numbers = map[string]uint64{"rules": uint64(end - at), "mean": tested / hits, "busiest": place}
			f.Cost = fmt.Sprintf("about %.0f ns for each such packet", nftRule*float64(tested/hits))
			return f.advice("move this rule to the front if no rule before it matches the same packets, or let `floodwall import` make sets of the list")
		}
		at = end
	}
	return f.healthy()
}
