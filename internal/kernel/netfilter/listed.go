// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Listed is a rule of another firewall, in the text form of that firewall's tool. Its methods search the text for known words and numbers.
type Listed struct {
	Iptables     bool
	Family       string // in nft's words; ip or ip6 for iptables
	Table, Chain string
	Hook         string // the hook of its chain; "" if the chain is reached only from other chains
	Text         string
	Packets      uint64 // number of packets that matched the rule; 0 if it has no counter
}

var (
	nftHook      = wording.Regexp(`^type \S+ hook (\S+) `)
	nftCounter   = wording.Regexp(`counter packets (\d+) bytes \d+`)
	savedRule    = wording.Regexp(`^(?:\[(\d+):\d+\] )?-A (\S+) (.*)$`)
	iptablesJump = wording.Regexp(`(?:^| )-[jg] (\S+)`)
	nftJump      = wording.Regexp(`\b(?:jump|goto) ([^\s,}]+)`)
	rulePorts    = wording.Regexp(`(! )?(?:--)?\b([sd])ports? (\{[^}]*\}|\S+)`)
	protocolWord = wording.Regexp(`\b(tcp|udp|udplite|sctp|dccp)\b`)
)

// ListedByNft parses the output of `nft list`.
func ListedByNft(text string) (rules []Listed) {
	var r Listed
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) == 4 && words[0] == "table":
			r.Family, r.Table = words[1], words[2]
		case len(words) == 3 && (words[0] == "chain" || words[0] == "set" || words[0] == "map"):
			r.Chain, r.Hook = "", ""
			if words[0] == "chain" {
				r.Chain = words[1]
			}
		case nftHook().MatchString(line):
			r.Hook = nftHook().FindStringSubmatch(line)[1]
		case line == "}":
			r.Chain = ""
		case r.Chain != "" && line != "":
			r.Text, r.Packets = line, 0
			if m := nftCounter().FindStringSubmatch(line); m != nil {
				r.Packets, _ = strconv.ParseUint(m[1], 10, 64) // a counter has no more than 64 bits
			}
			rules = append(rules, r)
		}
	}
	return rules
}

// ListedByIptables parses the output of iptables-save, with or without counters. family is in nft's words.
func ListedByIptables(family, text string) (rules []Listed) {
	r := Listed{Iptables: true, Family: family}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "*"); is {
			r.Table = name
		}
		m := savedRule().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		r.Chain, r.Text, r.Hook = m[2], m[3], ""
		r.Packets, _ = strconv.ParseUint(m[1], 10, 64) // as above
		if slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, r.Chain) {
			r.Hook = strings.ToLower(r.Chain)
		}
		rules = append(rules, r)
	}
	return rules
}

// LeadsTo lists the chains to which the rule jumps. For iptables the list also has the verdict.
func (r Listed) LeadsTo() (names []string) {
	find := nftJump
	if r.Iptables {
		find = iptablesJump
	}
	for _, m := range find().FindAllStringSubmatch(r.Text, -1) {
		names = append(names, m[1])
	}
	return names
}

var protocols = map[string]uint8{
	"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "udplite": unix.IPPROTO_UDPLITE, "sctp": unix.IPPROTO_SCTP, "dccp": unix.IPPROTO_DCCP,
}

// Proto returns IANA's number of the protocol that the rule matches. It returns 0 when the rule matches no protocol or several.
func (r Listed) Proto() uint8 {
	words := protocolWord().FindAllString(r.Text, -1)
	if len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return w != words[0] }) {
		return 0
	}
	return protocols[words[0]]
}

// Ports returns the ports that the rule matches, and their side: "s" for source or "d" for destination. sides limits the search to "s", "d" or both.
// If the rule has several matches, Ports returns the last one. The side is "" if the rule names no port. The ports are nil if the rule matches all
// ports except some, or if they are not numbers.
func (r Listed) Ports(sides string) (side string, ports []ranges.Range) {
	all := slices.DeleteFunc(rulePorts().FindAllStringSubmatch(r.Text, -1), func(m []string) bool { return !strings.Contains(sides, m[2]) })
	if len(all) == 0 {
		return "", nil
	}
	m := all[len(all)-1]
	for word := range strings.SplitSeq(strings.Trim(m[3], "{} "), ",") {
		first, last, is := strings.Cut(strings.ReplaceAll(strings.TrimSpace(word), ":", "-"), "-")
		if !is {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, errTo := strconv.ParseUint(last, 10, 16)
		if err != nil || errTo != nil || m[1] != "" {
			return m[2], nil
		}
		ports = append(ports, ranges.Span(uint32(from), uint32(to)))
	}
	return m[2], ranges.Normalize(ports)
}
