// SPDX-License-Identifier: Apache-2.0

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

// protect writes the lines for SYNPROXY that precede the verdict of a rule. Most rules and stages have no such lines.
//
// SYNPROXY of nftables verifies the checksum of an IPv6 packet as if it were an IPv4 packet, unless the device or its GRO has verified the checksum
// (net/netfilter/nft_synproxy.c, nft_synproxy_do_eval). So IPv6 packets of a device without checksum offload and GRO are dropped.
func (n *generator) protect(rule int, s plan.Stage, p chainInput) {
	r := n.plan.Program.Rules[rule]
	switch {
	case p.direction != "": // SYNPROXY handles no packets whose destination NAT has translated
	case n.plan.Untracks(rule, s):
		r.Match = match.Also(slices.Clone(r.Match), match.SYN)
		for _, l := range n.lines(&r, p) {
			n.line(l.text, "notrack")
		}
	case n.plan.ProxiedAt(rule, s):
		n.synproxy(&r, p)
	}
}

// synproxy writes lines that pass packets without a connection to SYNPROXY, and lines that drop such packets if SYNPROXY cannot use them.
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

// proxy returns the counters of a protection. The first call for a protection adds them to the table.
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

// The position of the timestamp option's kind in the ACKs that SYNPROXY sends to servers. In these ACKs it is the only option, after two NOPs
// (include/net/netfilter/nf_synproxy.h, synproxy_build_options of net/netfilter/nf_synproxy_core.c). hiddenKind is an option kind for experiments
// (RFC 4727, section 7) that no code on this host reads.
const (
	stampKind  = "@th,176,8"
	stampAlone = "@th,160,32"
	hiddenKind = "0xfd"
)

// proxied writes the chains before and after SYNPROXY's own hook at postrouting, for the ACKs that SYNPROXY sends to servers. The hook takes such an
// ACK for an ACK of the client. It translates the echo of the server's timestamp a second time (net/netfilter/nf_synproxy_core.c,
// ipv4_synproxy_hook). A server with Linux 6.15 or later rejects the wrong echo (net/ipv4/tcp_minisocks.c, tcp_check_req). A server that has answered
// with a SYN cookie, because its backlog is full, reads the options of the connection and the offset of its own timestamps from the echo
// (net/ipv4/syncookies.c, cookie_v4_check). So the server needs the original echo, and removing the option is not enough. Therefore the option gets
// another kind while the packet passes the hook. Two properties identify the packets of SYNPROXY: they have no input device, and their source is not
// an address of this host. The kernel computes the checksum later.
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

// synproxyText returns the synproxy statement, with the options that it offers.
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
