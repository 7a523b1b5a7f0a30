package netfilter

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/ranges"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Translation is a rule by which this host sends packets that come in on to another destination: DNAT, or a redirection to a port of the
// host itself.
type Translation struct {
	Proto uint8          // of the packets, by IANA's numbers; 0 when the rule does not say
	Ports []ranges.Range // that they ask for; none when the rule does not say, as behind a jump that looked at the port
	To    []string       // new destinations, such as 10.9.0.2:80, [fd09::2]:80 or :84; none when they are taken from a map
	Table string         // where the rule is: family, table and chain of nftables, or table and chain of iptables
	Rule  string         // as its tool lists it, "" when it could not be read
}

// Asks reports whether a packet of a protocol to a port may be one that the rule translates. Addresses and devices are not compared.
func (t *Translation) Asks(proto uint8, first, last uint16) bool {
	if t.Proto != 0 && proto != 0 && t.Proto != proto {
		return false
	}
	return ranges.Overlap(t.Ports, []ranges.Range{{First: uint32(first), Last: uint32(last)}})
}

// Port is the port of the new destination, 0 when the port stays as it is, or is not known.
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

// Translations lists the rules of this network namespace that send packets that come in to other destinations: those in tables that have
// a chain of type nat at prerouting, in nftables or made by iptables. A table whose rules cannot be read, as its program is missing or
// fails, counts as one rule, so that none is missed.
func Translations(ctx context.Context) (list []Translation, err error) {
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
		table := c.family + " " + c.table
		if c.hook != unix.NF_INET_PRE_ROUTING || seen[table] {
			continue
		}
		seen[table] = true
		list = append(list, tableTranslations(ctx, c.family, c.table)...)
	}
	return list, errors.Join(err, ctx.Err())
}

// tableTranslations are those of a table of nftables.
func tableTranslations(ctx context.Context, family, name string) []Translation {
	table := family + " " + name
	t, err := find("nft", nftPackage)
	if err == nil {
		var rules string
		if rules, err = t.unchanged(ctx, nftState, "--terse", "-nn", "list", "table", family, name); err == nil {
			return readTranslations(table, rules)
		}
	}
	return []Translation{{Table: table}}
}

// oldTranslations are those of the older iptables, for a version of IP.
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
			return readTranslations("nat", rules), nil
		}
	}
	return []Translation{{Table: "nat of iptables"}}, nil
}

// The parts of rules, as nft lists them, also those that iptables made, and as iptables-save prints them. A port that a rule
// does not want says nothing of those that it wants.
var (
	chainLine    = wording.Regexp(`^\s*chain (\S+) \{|^-A (\S+) `)
	outputHook   = wording.Regexp(`\bhook output\b`)
	redirecting  = wording.Regexp(`(?i)\b(dnat|redirect)\b`)
	protocolWord = wording.Regexp(`\b(tcp|udp|udplite|sctp|dccp)\b`)
	nftPorts     = wording.Regexp(`\bdport (\{[^}]*\}|[0-9]+(?:-[0-9]+)?)`)
	savedPorts   = wording.Regexp(`(! )?--(?:dports?|destination-ports?) ([0-9:,]+)`)
	destination  = wording.Regexp(`\bdnat (?:ip6? )?to (:?[0-9a-fA-F\[][0-9a-fA-F.:\[\]-]*)|\bredirect to (:[0-9-]+)|--to-destination (\S+)|--to-ports ([0-9-]+)`)
	jumpTo       = wording.Regexp(`(?:\b(?:jump|goto)|(?:^| )-[jg]) (\S+)`)
	countedWords = wording.Regexp(`counter packets [0-9]+ bytes [0-9]+ `)
)

var protocols = map[string]uint8{
	"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "udplite": unix.IPPROTO_UDPLITE, "sctp": unix.IPPROTO_SCTP, "dccp": unix.IPPROTO_DCCP,
}

// readTranslations reads the rules of a table. Rules of a chain at the hook output are about packets of the host itself. A rule with ports
// that leads to a chain that translates is one, too, as those of Kubernetes are.
func readTranslations(table, listing string) (list []Translation) {
	chain, own := "", false
	ends, ways := map[string][]string{}, map[string][]string{} // by chain: the destinations of its rules, and where it leads
	var leading []Translation
	for line := range strings.Lines(listing) {
		if m := chainLine().FindStringSubmatch(line); m != nil {
			chain, own = m[1]+m[2], m[2] == "OUTPUT"
		}
		own = own || outputHook().MatchString(line)
		rule := line
		if strings.HasPrefix(line, "-A ") {
			_, rule, _ = strings.Cut(line[len("-A "):], " ")
		}
		rule = countedWords().ReplaceAllString(strings.TrimSpace(rule), "")
		if own || strings.HasPrefix(rule, "chain ") {
			continue
		}
		t := Translation{Table: table + " " + chain, Rule: rule, Ports: portsOf(rule), Proto: protocolOf(rule)}
		if redirecting().MatchString(rule) {
			if m := destination().FindStringSubmatch(rule); m != nil {
				to := m[1] + m[2] + m[3]
				if m[4] != "" {
					to = ":" + m[4]
				}
				t.To = []string{to}
			}
			ends[chain] = append(ends[chain], t.To...)
			list = append(list, t)
		} else if m := jumpTo().FindStringSubmatch(rule); m != nil {
			ways[chain] = append(ways[chain], m[1])
			if len(t.Ports) > 0 {
				t.To = []string{m[1]}
				leading = append(leading, t)
			}
		}
	}
	for _, t := range leading {
		if t.To = reached(t.To[0], ends, ways, map[string]bool{}); len(t.To) > 0 {
			list = append(list, t)
		}
	}
	return list
}

// reached are the destinations of a chain's rules and of those that it leads to.
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

// protocolOf is the protocol that a rule wants, 0 when that is none or one of several.
func protocolOf(rule string) uint8 {
	words := protocolWord().FindAllString(rule, -1)
	if len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return w != words[0] }) {
		return 0
	}
	return protocols[words[0]]
}

// portsOf are the destination ports that a rule wants.
func portsOf(rule string) (list []ranges.Range) {
	text, between := "", "-"
	if m := savedPorts().FindStringSubmatch(rule); m != nil {
		if m[1] != "" {
			return nil
		}
		text, between = m[2], ":"
	} else if m := nftPorts().FindStringSubmatch(rule); m != nil {
		text = strings.Trim(m[1], "{}")
	}
	for one := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(one), between)
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA == nil && errB == nil {
			list = append(list, ranges.Range{First: uint32(a), Last: uint32(b)})
		}
	}
	return ranges.Normalize(list)
}
