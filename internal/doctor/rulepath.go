package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mostRoutes bounds the ways to one rule that are looked at.
const mostRoutes = 64

var (
	iptablesJump = regexp.MustCompile(`(?:^| )-[jg] (\S+)`)
	nftJump      = regexp.MustCompile(`\b(?:jump|goto) ([^\s,}]+)`)
)

// leadsTo lists the chains that a rule jumps to.
func (r savedRule) leadsTo() (names []string) {
	find := nftJump
	if r.iptables {
		find = iptablesJump
	}
	for _, m := range find.FindAllStringSubmatch(r.text, -1) {
		names = append(names, m[1])
	}
	return names
}

// within names a chain of the table that the rule is in.
func (r savedRule) within(chain string) string {
	return fmt.Sprint(r.iptables, r.family, " ", r.table, " ", chain)
}

// routesOf are the rules that wanted chooses, once for each way that packets come to them: with the hook where the way begins, and the rules
// that lead there. all is false when a map whose elements are not printed may lead to one of them. A rule that nothing leads to is left out.
func routesOf(rules []savedRule, wanted func(savedRule) bool) (routes []savedRule, all bool) {
	jumps, maps := map[string][]savedRule{}, map[string]bool{}
	for _, r := range rules {
		for _, to := range r.leadsTo() {
			jumps[r.within(to)] = append(jumps[r.within(to)], r)
		}
		if strings.Contains(r.text, "vmap @") {
			maps[r.within("")] = true
		}
	}
	var back func(r savedRule, depth int) []savedRule
	back = func(r savedRule, depth int) (list []savedRule) {
		if r.hook != "" {
			return []savedRule{r}
		}
		if depth > 16 { // more than the kernel lets chains lead to each other (NFT_JUMP_STACK_SIZE)
			return nil
		}
		for _, j := range jumps[r.within(r.chain)] {
			for _, way := range back(j, depth+1) {
				if len(list) < mostRoutes {
					step := r
					step.hook, step.via = way.hook, strings.TrimSpace(way.via+" "+way.text)
					list = append(list, step)
				}
			}
		}
		return list
	}
	all = true
	for _, r := range rules {
		if !wanted(r) {
			continue
		}
		ways := back(r, 0)
		if ways == nil && maps[r.within("")] {
			all = false
		}
		routes = append(routes, ways...)
	}
	return routes, all
}

// whole is the text of the rule behind those that lead to it.
func (r savedRule) whole() string { return strings.TrimSpace(r.via + " " + r.text) }

// from says for evidence which rules lead to the rule, "" where none does.
func (r savedRule) from() string {
	if r.via == "" {
		return ""
	}
	return fmt.Sprintf(" (reached by %q)", r.via)
}

// tool is the command of iptables for the rule's family.
func (r savedRule) tool() string {
	if r.family == "ip6" {
		return "ip6tables"
	}
	return "iptables"
}

// meets reports whether a packet of one rule, or its answer, can meet the other: they share a family and a protocol.
func (r savedRule) meets(other savedRule) bool {
	single := func(f string) bool { return f == "ip" || f == "ip6" }
	families := r.family == other.family || !single(r.family) || !single(other.family)
	return families && (r.proto() == other.proto() || r.proto() == "" || other.proto() == "")
}

// protocol is tcp, udp, or "" for both or more.
type protocol string

const (
	tcp protocol = "tcp"
	udp protocol = "udp"
)

// proto is the protocol that a rule asks for.
func (r savedRule) proto() protocol {
	isTCP, isUDP := r.word("tcp"), r.word("udp")
	switch text := " " + r.whole() + " "; {
	case isTCP == isUDP || strings.Contains(text, "l4proto {"):
		return ""
	case isTCP:
		return tcp
	}
	return udp
}

func (p protocol) iptables() string {
	if p == "" {
		return ""
	}
	return " -p " + string(p)
}

// nft is a test of the protocol and of ports, with a blank behind it.
func (p protocol) nft(side string, ports portSpans) string {
	switch {
	case ports.all() && p == "":
		return ""
	case ports.all():
		return "meta l4proto " + string(p) + " "
	case p == "":
		return "meta l4proto { tcp, udp } th " + side + " " + ports.nft() + " "
	}
	return string(p) + " " + side + " " + ports.nft() + " "
}

// portSpan is a range of ports.
type portSpan struct{ first, last int }

// portSpans are the ports of a rule.
type portSpans []portSpan

// anyPort is that of a rule that names none.
var anyPort = portSpan{0, 65535}

func (s portSpans) all() bool { return slices.Contains(s, anyPort) }

// without are the ports that others have not.
func (s portSpans) without(others []portSpan) (left portSpans) {
	others = slices.SortedFunc(slices.Values(others), func(a, b portSpan) int { return cmp.Compare(a.first, b.first) })
	for _, p := range s {
		for _, o := range others {
			if o.last < p.first || o.first > p.last {
				continue
			}
			if o.first > p.first {
				left = append(left, portSpan{p.first, o.first - 1})
			}
			p.first = o.last + 1
		}
		if p.first <= p.last {
			left = append(left, p)
		}
	}
	return left
}

// words writes the ports, ranges with a sign between their ends.
func (s portSpans) words(sign, between string) string {
	var words []string
	for _, p := range s {
		word := strconv.Itoa(p.first)
		if p.last > p.first {
			word += sign + strconv.Itoa(p.last)
		}
		words = append(words, word)
	}
	return strings.Join(words, between)
}

// iptables is the test of source (s) or destination (d) ports, with a blank before it.
func (s portSpans) iptables(side string) string {
	switch {
	case s.all():
		return ""
	case len(s) > 1:
		return " -m multiport --" + side + "ports " + s.words(":", ",")
	}
	return " --" + side + "port " + s.words(":", ",")
}

func (s portSpans) nft() string {
	if len(s) > 1 {
		return "{ " + s.words("-", ", ") + " }"
	}
	return s.words("-", ", ")
}

var rulePort = regexp.MustCompile(`(! )?(?:--)?\b([sd])ports? (\{[^}]*\}|\S+)`)

// ports are the direction and the ports of a rule, or of the last rule on the way to it that names some: "d" and 53. They are "" and any
// port when none does, and the direction with any port when they are not written as numbers.
func (r savedRule) ports() (side string, ports portSpans) {
	all := rulePort.FindAllStringSubmatch(r.whole(), -1)
	if all == nil {
		return "", portSpans{anyPort}
	}
	m := all[len(all)-1]
	if m[1] != "" {
		return m[2], portSpans{anyPort}
	}
	for word := range strings.SplitSeq(strings.Trim(m[3], "{} "), ",") {
		first, last, is := strings.Cut(strings.ReplaceAll(strings.TrimSpace(word), ":", "-"), "-")
		if !is {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err != nil || errTo != nil {
			return m[2], portSpans{anyPort}
		}
		ports = append(ports, portSpan{from, to})
	}
	return m[2], ports
}
