package compile

import (
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/match"
)

// protect adds what stands before the verdict of a rule with SYNPROXY: nothing, at most stages.
func (f *iptFamily) protect(t *iptTable, rule int, r *ir.Rule, s Stage) {
	switch {
	case f.pl.notracked(rule, s):
		syn := *r
		syn.Match = match.Also(slices.Clone(r.Match), match.SYN)
		f.aside(t, &syn, func(c *iptChain, a iptAll) {
			c.add("%s-m comment --comment %s -j CT --notrack", a, commentText(f.out.Rules[rule]+" (not tracked)"))
		})
	case f.pl.proxiedAt(rule, s):
		f.synproxy(t, r)
	}
}

// synproxy adds the lines that give SYNPROXY what belongs to no connection, and drop what is not for it.
func (f *iptFamily) synproxy(t *iptTable, r *ir.Rule) {
	service := f.pl.Program.Protections[r.Protect-1].Service
	counters := Proxy{shortName(service+":synproxy", maxComment), shortName(service+":"+ir.AckInvalid.String(), maxComment)}
	f.out.Proxies[r.Protect-1] = counters
	target := f.synproxyTarget(found(f.pl, f.o.Protect, r.Protect))
	forProxy := *r
	forProxy.Match = match.Also(slices.Clone(r.Match), match.SYNOrACK)
	f.aside(t, &forProxy, func(c *iptChain, a iptAll) {
		unknown := iptAll{match: []string{"-m conntrack --ctstate INVALID,UNTRACKED"}}
		f.line(c, a.and(unknown), target, iptMark{counters.Proxied, counters.Proxied})
	})
	f.aside(t, r, func(c *iptChain, a iptAll) {
		invalid := iptAll{match: []string{"-m conntrack --ctstate INVALID"}}
		f.line(c, a.and(invalid), "DROP", iptMark{counters.Invalid, counters.Invalid})
	})
}

// proxied adds the chain for the ACKs by which SYNPROXY answers servers, of which nft.proxied tells more. No target of
// iptables keeps the option from SYNPROXY's hook or sets its echo, so it goes before SYNPROXY can translate it. Linux takes
// an ACK without. A server that has answered with a cookie then knows no option of the connection: windowsNote says so.
func (f *iptFamily) proxied() {
	if !f.pl.proxies() {
		return
	}
	t := f.table("mangle", f.mainChain("PROXIED"))
	for _, r := range f.pl.proxyAnswers() {
		f.aside(t, &r, func(c *iptChain, a iptAll) {
			comment := commentText(shortName(r.Name, maxComment) + " (answers)")
			c.add("%s-m comment --comment %s -j TCPOPTSTRIP --strip-options 8", a.and(localAddr(0, true)), comment)
		})
	}
}

// synproxyTarget is the target with the options that are offered, as iptables-save writes it.
func (f *iptFamily) synproxyTarget(found ir.Handshake) string {
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

// aside adds lines for what a rule matches, behind which packets go on. Where there are exceptions, the lines have a
// chain of their own.
func (f *iptFamily) aside(t *iptTable, r *ir.Rule, add func(c *iptChain, a iptAll)) {
	for _, c := range f.conditions(r) {
		c.any = slices.DeleteFunc(c.any, iptAll.never)
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
		add(own, iptAll{})
	}
}
