package nftables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/internal/model/ranges"
)

// protect writes what stands before the verdict of a rule with SYNPROXY: nothing, at most stages.
//
// SYNPROXY of nftables checks the checksum of an IPv6 packet as if it were IPv4, unless the device has done so, or its GRO
// (net/netfilter/nft_synproxy.c, nft_synproxy_do_eval). Packets of a device that does neither are dropped.
func (n *generator) protect(rule int, s plan.Stage, p chainInput) {
	r := n.plan.Program.Rules[rule]
	switch {
	case p.direction != "": // SYNPROXY has nothing to do with what conntrack has translated
	case n.plan.Untracks(rule, s):
		r.Match = match.Also(slices.Clone(r.Match), match.SYN)
		for _, l := range n.lines(&r, p) {
			n.line(l.text, "notrack")
		}
	case n.plan.ProxiedAt(rule, s):
		n.synproxy(&r, p)
	}
}

// synproxy writes the lines that give SYNPROXY what belongs to no connection, and drop what is not for it.
func (n *generator) synproxy(r *ir.Rule, p chainInput) {
	r = n.plan.Unconnected(r)
	counters := n.proxy(r.Protect)
	found := plan.HandshakeOf(n.plan, n.options.Protect, r.Protect)
	for family, mss := range found.MSS {
		of := *r
		of.Match = match.Also(slices.Clone(r.Match), match.SYNOrACK)
		if found.MSS[0] != found.MSS[1] {
			of.Match = match.Also(of.Match, ir.Match{Field: packet.Family, Values: ranges.Of(uint32(family))})
		} else if family > 0 {
			break
		}
		for _, l := range n.lines(&of, p) {
			n.line("ct state invalid,untracked", l.text, countText(counters.Proxied), synproxyText(mss, found))
		}
	}
	for _, l := range n.lines(r, p) {
		n.line("ct state invalid", l.text, countText(counters.Invalid), "drop")
	}
}

// proxy are the counters of a protection, which are added to the table once.
func (n *generator) proxy(number int) plan.ProxyCounters {
	counters, ok := n.out.Proxies[number-1]
	if !ok {
		service := n.plan.Program.Protections[number-1].Service
		kind := counterKinds[ir.RuleKindService]
		counters = plan.ProxyCounters{
			Proxied: n.counter(kind, service+":synproxy"), Invalid: n.counter(kind, service+":"+ir.AckInvalid.String()),
		}
		n.out.Proxies[number-1] = counters
	}
	return counters
}

// Where the kind of the timestamp option is in the ACKs by which SYNPROXY answers servers, which have no other option
// (include/net/netfilter/nf_synproxy.h, synproxy_build_options of net/netfilter/nf_synproxy_core.c): two NOPs stand before
// it. hiddenKind is a kind for experiments (RFC 4727, section 7), which nothing on this host reads.
const (
	stampKind  = "@th,176,8"
	stampAlone = "@th,160,32"
	hiddenKind = "0xfd"
)

// proxied writes the chains around SYNPROXY's own hook at postrouting, for the ACKs by which SYNPROXY answers servers. The
// hook takes such an ACK for the client's and translates its echo of the server's timestamp a second time
// (net/netfilter/nf_synproxy_core.c, ipv4_synproxy_hook). A server of Linux 6.15 or later refuses that echo
// (net/ipv4/tcp_minisocks.c, tcp_check_req). A server that has answered with a cookie, as its backlog is full, reads the
// options of the connection and the offset of its own timestamps from the echo (net/ipv4/syncookies.c, cookie_v4_check), so
// no other value does, and neither does an ACK without the option. So the option has another kind while it passes the hook.
// Packets from nowhere with an address of others are SYNPROXY's. The checksum is made later.
func (n *generator) proxied() {
	if !n.plan.Proxies() {
		return
	}
	for _, side := range []struct{ name, priority, word, kind string }{
		{"proxied", priorityBeforeSynproxy, "0x0101080a", hiddenKind},
		{"proxied-behind", priorityLast, "0x0101" + strings.TrimPrefix(hiddenKind, "0x") + "0a", "0x08"},
	} {
		n.chain(side.name, "postrouting priority "+side.priority)
		for _, r := range n.plan.ProxyAnswers() {
			for _, l := range n.lines(&r, chainInput{fragments: firstFragment}) {
				n.line("iif 0", l.text, "fib saddr type != local", stampAlone, side.word, stampKind, "set", side.kind)
			}
		}
		n.end()
	}
}

// synproxyText is the statement, with the options that are offered.
func synproxyText(mss uint16, found ir.Handshake) string {
	words := []string{fmt.Sprintf("synproxy mss %d", mss)}
	if found.Options&ir.WindowScaling != 0 {
		words = append(words, fmt.Sprintf("wscale %d", found.WScale))
	}
	if found.Options&ir.Timestamps != 0 {
		words = append(words, "timestamp")
	}
	if found.Options&ir.SACK != 0 {
		words = append(words, "sack-perm")
	}
	return strings.Join(words, " ")
}
