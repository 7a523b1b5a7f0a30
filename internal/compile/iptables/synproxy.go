// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/match"
)

// protect adds the lines for SYNPROXY that precede the verdict of a rule. Most rules and stages have no such lines.
func (f *familyBuilder) protect(t *table, rule int, r *ir.Rule, s plan.Stage) {
	switch {
	case f.asked != nil: // SYNPROXY handles no packets whose destination NAT has translated
	case f.pl.Untracks(rule, s):
		syn := *r
		syn.Match = match.Also(slices.Clone(r.Match), match.SYN)
		f.aside(t, &syn, func(c *chain, a lineTests) {
			c.add("%s-m comment --comment %s -j CT --notrack", a, commentText(f.out.Rules[rule]+" (not tracked)"))
		})
	case f.pl.ProxiedAt(rule, s):
		f.synproxy(t, r)
	}
}

// synproxy adds lines that pass packets without a connection to SYNPROXY, and lines that drop such packets if SYNPROXY cannot use them.
func (f *familyBuilder) synproxy(t *table, r *ir.Rule) {
	r = f.pl.Unconnected(r)
	service := f.pl.Program.Protections[r.Protect-1].Service
	counters := plan.ProxyCounters{
		Proxied: shortName(service+":synproxy", maxComment), Invalid: shortName(service+":"+ir.AckInvalid.String(), maxComment),
	}
	f.out.Proxies[r.Protect-1] = counters
	target := f.synproxyTarget(plan.HandshakeOf(f.pl, f.o.Protect, r.Protect))
	forProxy := *r
	forProxy.Match = match.Also(slices.Clone(r.Match), match.SYNOrACK)
	f.aside(t, &forProxy, func(c *chain, a lineTests) {
		unknown := lineTests{match: []string{"-m conntrack --ctstate INVALID,UNTRACKED"}}
		f.line(c, a.and(unknown), target, lineMark{counters.Proxied, counters.Proxied})
	})
	f.aside(t, r, func(c *chain, a lineTests) {
		invalid := lineTests{match: []string{"-m conntrack --ctstate INVALID"}}
		f.line(c, a.and(invalid), "DROP", lineMark{counters.Invalid, counters.Invalid})
	})
}

// proxied adds the chain for the ACKs that SYNPROXY sends to servers. The method proxied of package nftables explains the problem. iptables has no
// target that hides the timestamp option from SYNPROXY's hook or sets its echo. So the chain removes the option before SYNPROXY can translate it.
// Linux accepts an ACK without the option. A server that has answered with a SYN cookie then does not know the connection's options (windowsNote).
func (f *familyBuilder) proxied() {
	if !f.pl.Proxies() {
		return
	}
	t := f.table("mangle", f.mainChain("PROXIED"))
	for _, r := range f.pl.ProxyAnswers() {
		f.aside(t, &r, func(c *chain, a lineTests) {
			comment := commentText(shortName(r.Name, maxComment) + " (answers)")
			c.add("%s-m comment --comment %s -j TCPOPTSTRIP --strip-options 8", a.and(localAddr(0, true)), comment)
		})
	}
}

// synproxyTarget returns the SYNPROXY target with the options that it offers, in the form of iptables-save.
func (f *familyBuilder) synproxyTarget(found ir.Handshake) string {
	target := "SYNPROXY"
	if found.Options&ir.SACK != 0 {
		target += " --sack-perm"
	}
	if found.Options&ir.Timestamps != 0 {
		target += " --timestamp"
	}
	if found.Options&ir.WindowScaling != 0 {
		target += fmt.Sprintf(" --wscale %d", found.WScale)
	}
	return target + fmt.Sprintf(" --mss %d", found.MSS[f.family])
}

// aside adds lines for the packets that a rule matches. After these lines, packets continue with the next line of the chain. If the condition has
// exceptions, the lines are in a chain of their own.
func (f *familyBuilder) aside(t *table, r *ir.Rule, add func(c *chain, a lineTests)) {
	for _, c := range f.conditions(r) {
		c.any = slices.DeleteFunc(c.any, lineTests.never)
		if len(c.not) == 0 {
			for _, a := range c.any {
				add(t.at, a)
			}
			continue
		}
		own := t.chain(f.chainName(r.Name))
		for _, a := range c.any {
			t.at.add("%s-j %s", a, own.name)
		}
		for _, a := range c.not {
			own.add("%s-j RETURN", a)
		}
		add(own, lineTests{})
	}
}
