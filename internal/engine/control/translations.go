// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/policy"
)

// mostTranslations is the largest number of translations that get their own note: a host of containers may have thousands.
const mostTranslations = 5

// TranslationNotes returns notes on ports of a policy that this host translates (DNAT). Rules must name the port before the translation. A rule that
// names only the port after the translation does not match. The notes exist for that mistake. They also name settings that exclude these packets from
// conntrack. Conntrack does the NAT, so with such a setting a published port does not answer.
func TranslationNotes(p *policy.Policy, list []netfilter.Translation) (notes []string) {
	more := 0
	for _, t := range merged(list) {
		text := translated(t)
		asked := namers(p, func(port policy.Port) bool { return t.Asks(port.Proto, port.First, port.Last) })
		behind := namers(p, func(port policy.Port) bool {
			return port.First == t.Port() && port.Last == port.First && (port.Proto == 0 || t.Proto == 0 || port.Proto == t.Proto)
		})
		untracked := untrackers(p, t)
		switch {
		case len(asked) > 0:
			text += "; rules mean the port that was asked for, on every target: " + strings.Join(asked, ", ")
		case len(untracked) > 0:
		case len(behind) > 0 && p.Default == policy.Drop && len(t.Ports) > 0:
			text += fmt.Sprintf("; no rule names that port, and rules that name port %d do not match these packets: %s", t.Port(), strings.Join(behind, ", "))
		default:
			continue
		}
		if len(untracked) > 0 {
			text += "; conntrack has to see these packets, or nothing sends them on: take out " + strings.Join(untracked, ", ")
		}
		if len(notes) == mostTranslations {
			more++
			continue
		}
		notes = append(notes, text)
	}
	if more > 0 {
		notes = append(notes, fmt.Sprintf("rules of this host's NAT that match ports of the policy, too: %d", more))
	}
	return notes
}

// untrackers returns the settings that exclude the packets of a translation from conntrack, with their places in the policy. Other notes cover
// protected services.
func untrackers(p *policy.Policy, t netfilter.Translation) (list []string) {
	if t.Table == netfilter.IPVS { // it works without conntrack
		return nil
	}
	asks := func(port policy.Port) bool { return t.Asks(port.Proto, port.First, port.Last) }
	if slices.Contains(p.Untracked, policy.AllTraffic) {
		list = append(list, "`untracked: all`")
	}
	for _, e := range p.Exempt {
		if slices.ContainsFunc(e.Match.Port, asks) {
			list = append(list, fmt.Sprintf("`untracked` (%s:%d)", p.File, e.Pos.Line))
		}
	}
	for i := range p.Services {
		if s := &p.Services[i]; s.Track == policy.TrackNot && s.Syn == nil && slices.ContainsFunc(s.Port, asks) {
			list = append(list, fmt.Sprintf("`track: false` of %s (%s:%d)", s.Name, p.File, s.Pos.Line))
		}
	}
	return list
}

// Translated returns the destination to which this host redirects a packet. It returns "" when no NAT rule can match the packet. It does not compare
// the address and the device of the packet.
func Translated(list []netfilter.Translation, proto uint8, port uint16) string {
	for _, t := range merged(list) {
		if t.Asks(proto, port, port) {
			return translated(t)
		}
	}
	return ""
}

// merged merges translations of the same packets. Most translations are written as one rule for IPv4 and one for IPv6.
func merged(list []netfilter.Translation) (out []netfilter.Translation) {
	for _, t := range list {
		i := slices.IndexFunc(out, func(o netfilter.Translation) bool {
			return len(o.Ports) > 0 && o.Proto == t.Proto && slices.Equal(o.Ports, t.Ports) && o.Port() == t.Port()
		})
		if i < 0 {
			t.To = slices.Clone(t.To)
			out = append(out, t)
			continue
		}
		for _, to := range t.To {
			if !slices.Contains(out[i].To, to) {
				out[i].To = append(out[i].To, to)
			}
		}
	}
	return out
}

// translated describes a translation.
func translated(t netfilter.Translation) string {
	const most = 3
	to := strings.Join(t.To[:min(len(t.To), most)], " and ")
	switch {
	case len(t.To) > most:
		to += fmt.Sprintf(" and %d more", len(t.To)-most)
	case to == "":
		to = "another destination"
	case to[0] == ':':
		to = "its own port " + to[1:]
	}
	by := "NAT, table " + t.Table
	if t.Table == netfilter.IPVS {
		by = t.Table
	}
	text := fmt.Sprintf("this host sends on to %s what asks for %s (%s", to, askedPorts(t), by)
	if t.Rule != "" {
		text += ": " + t.Rule
	}
	return text + ")"
}

// askedPorts returns the ports that a translation matches, in the form of a policy.
func askedPorts(t netfilter.Translation) string {
	var list []string
	for _, r := range t.Ports {
		list = append(list, policy.Port{Proto: t.Proto, First: uint16(r.First), Last: uint16(r.Last)}.String())
	}
	return strings.Join(list, ", ")
}

// namers returns the rules and services of a policy that name a port for which wanted returns true, with their places.
func namers(p *policy.Policy, wanted func(policy.Port) bool) (list []string) {
	for i := range p.Services {
		if s := &p.Services[i]; slices.ContainsFunc(s.Port, wanted) {
			list = append(list, fmt.Sprintf("%s (%s:%d)", s.Name, p.File, s.Pos.Line))
		}
	}
	for i := range p.Rules {
		if r := &p.Rules[i]; slices.ContainsFunc(r.Match.Port, wanted) {
			list = append(list, fmt.Sprintf("%s (%s:%d)", r.Name, p.File, r.Pos.Line))
		}
	}
	return list
}
