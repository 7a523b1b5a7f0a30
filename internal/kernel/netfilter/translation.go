// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Translation is a rule with which this host redirects incoming packets to another destination. This is DNAT, or a redirection to a port of the host.
type Translation struct {
	Proto uint8          // protocol of the packets, IANA's number; 0 if the rule names none
	Ports []ranges.Range // destination ports of the packets; nil if the rule names none, for example after a jump that matched the port
	Open  bool           // whether Ports is nil because neither the rule nor the rules that lead to it say which ports they match
	In    string         // the only device whose packets the rule matches; "" if the rule names none
	For   netip.Prefix   // the only destination of the packets; not valid if the rule names none
	To    []string       // new destinations, such as 10.9.0.2:80, [fd09::2]:80 or :84; nil if they come from a map
	Table string         // the place of the rule: family, table and chain of nftables, or table and chain of iptables
	Rule  string         // the rule in the tool's text form; "" if it could not be read
}

// Asks reports whether the rule may translate a packet of a protocol to a port in a range. It does not compare addresses and devices.
func (t *Translation) Asks(proto uint8, first, last uint16) bool {
	if t.Proto != 0 && proto != 0 && t.Proto != proto {
		return false
	}
	return ranges.Overlap(t.Ports, []ranges.Range{{First: uint32(first), Last: uint32(last)}})
}

// Port returns the port of the new destination. It returns 0 if the port does not change or is not known.
func (t *Translation) Port() uint16 {
	if len(t.To) == 0 {
		return 0
	}
	if _, err := netip.ParseAddr(t.To[0]); err == nil {
		return 0
	}
	n, _ := strconv.ParseUint(t.To[0][strings.LastIndexByte(t.To[0], ':')+1:], 10, 16)
	return uint16(n)
}

// Translations lists the rules of this network namespace that redirect incoming packets to other destinations. It searches tables that have a chain
// of type nat at prerouting, in nftables or made by iptables. If the rules of a table cannot be read, because the program is missing or fails, the
// list has one entry for the table, so that no translation is missed. Virtual services of IPVS are in the list, too.
func Translations(ctx context.Context) (list []Translation, err error) {
	if list, err = virtualServices(); err != nil {
		return nil, err
	}
	for _, version := range []string{"4", "6"} {
		old, err := oldTranslations(ctx, version)
		if err != nil {
			return nil, err
		}
		list = append(list, old...)
	}
	chains, err := natChains()
	seen := map[string]bool{}
	for _, c := range chains {
		family := nftable.FamilyName(c.Family)
		table := family + " " + c.Table
		if c.HookName() != "prerouting" || seen[table] {
			continue
		}
		seen[table] = true
		list = append(list, tableTranslations(ctx, family, c.Table)...)
	}
	return list, errors.Join(err, ctx.Err())
}

// tableTranslations returns the translations of a table of nftables.
func tableTranslations(ctx context.Context, family, name string) []Translation {
	table := family + " " + name
	t, err := find("nft", nftPackage)
	if err == nil {
		var rules string
		if rules, err = t.unchanged(ctx, nftState, "--terse", "-nn", "list", "table", family, name); err == nil {
			return readTranslations(table, ListedByNft(rules))
		}
	}
	return []Translation{{Table: table, Open: true}}
}

// oldTranslations returns the translations of iptables-legacy, for an IP version.
func oldTranslations(ctx context.Context, version string) ([]Translation, error) {
	there, err := oldTable(version, "nat")
	if !there || err != nil {
		return nil, err
	}
	names := map[string][]string{"4": {"iptables-legacy-save", "iptables-save"}, "6": {"ip6tables-legacy-save", "ip6tables-save"}}[version]
	for _, name := range names {
		t, err := find(name, "iptables")
		if err != nil {
			continue
		}
		if rules, err := t.run(ctx, "", "-t", "nat"); err == nil {
			return readTranslations("nat", ListedByIptables("", rules)), nil
		}
	}
	return []Translation{{Table: "nat of iptables", Open: true}}, nil
}

// Patterns for parts of rules, in the form of nft, which includes rules made by iptables-nft, and in the form of iptables-save.
var (
	redirecting  = wording.Regexp(`(?i)\b(dnat|redirect)\b`)
	destination  = wording.Regexp(`\bdnat (?:ip6? )?to (:?[0-9a-fA-F\[][0-9a-fA-F.:\[\]-]*)|\bredirect to (:[0-9-]+)|--to-destination (\S+)|--to-ports ([0-9-]+)`)
	ruleDevice   = wording.Regexp(`(?:^| )(! )?-i (\S+)|\biif(?:name)? (!= )?"?([^\s"{}]+)"? `)
	ruleAddress  = wording.Regexp(`(?:^| )(! )?-d (\S+)|\bdaddr (!= )?([0-9a-fA-F.:/]+) `)
	countedWords = wording.Regexp(`counter packets [0-9]+ bytes [0-9]+ `)
)

// readTranslations returns the translations among the rules of a table. It skips rules of chains at the hook output, because these match packets of
// the host itself. A rule with ports that jumps to a chain that translates is also a translation. Rules of Kubernetes have this form.
func readTranslations(table string, rules []Listed) (list []Translation) {
	ends, ways := map[string][]string{}, map[string][]string{} // by chain: the destinations of its rules, and the chains to which it jumps
	var leading []Translation
	open := openChains(rules)
	for _, r := range rules {
		if r.Hook == "output" {
			continue
		}
		_, ports := r.Ports("d")
		t := Translation{Table: table + " " + r.Chain, Rule: countedWords().ReplaceAllString(r.Text, ""), Ports: ports, Proto: r.Proto()}
		t.In = named(ruleDevice(), r.Text)
		t.For = prefix(named(ruleAddress(), r.Text))
		t.Open = len(ports) == 0 && slices.Contains(open, r.Chain)
		if !redirecting().MatchString(r.Text) {
			ways[r.Chain] = append(ways[r.Chain], r.LeadsTo()...)
			if t.To = r.LeadsTo(); len(t.Ports) > 0 {
				leading = append(leading, t)
			}
			continue
		}
		if m := destination().FindStringSubmatch(r.Text); m != nil {
			to := m[1] + m[2] + m[3]
			if m[4] != "" {
				to = ":" + m[4]
			}
			t.To = []string{to}
		}
		ends[r.Chain] = append(ends[r.Chain], t.To...)
		list = append(list, t)
	}
	for _, t := range leading {
		chains := t.To
		t.To = nil
		for _, chain := range chains {
			t.To = append(t.To, reached(chain, ends, ways, map[string]bool{})...)
		}
		if len(t.To) > 0 {
			list = append(list, t)
		}
	}
	return list
}

// openChains returns the chains that packets to any port reach: those at a hook, and those to which their rules without ports jump.
func openChains(rules []Listed) (open []string) {
	for before := -1; before != len(open); {
		before = len(open)
		for _, r := range rules {
			chains := []string{r.Chain}
			if r.Hook == "" || r.Hook == "output" {
				chains = nil
			}
			if side, _ := r.Ports("d"); side == "" && slices.Contains(open, r.Chain) {
				chains = r.LeadsTo()
			}
			for _, chain := range chains {
				if !slices.Contains(open, chain) {
					open = append(open, chain)
				}
			}
		}
	}
	return open
}

// named returns the word that a rule has behind a match, "" if the rule has none or excludes the word.
func named(match *regexp.Regexp, rule string) string {
	m := match.FindStringSubmatch(rule)
	if m == nil || m[1] != "" || m[3] != "" {
		return ""
	}
	return m[2] + m[4]
}

// prefix parses an address or a prefix. The result is not valid for another text.
func prefix(text string) netip.Prefix {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// reached returns the destinations of a chain's rules, and of the chains that can be reached from it.
func reached(chain string, ends, ways map[string][]string, seen map[string]bool) (list []string) {
	if seen[chain] {
		return nil
	}
	seen[chain] = true
	list = slices.Clone(ends[chain])
	for _, next := range ways[chain] {
		list = append(list, reached(next, ends, ways, seen)...)
	}
	return list
}
