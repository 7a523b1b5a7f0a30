package doctor

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// savedRule is a rule as its tool prints it. Floodwall's own are left out.
type savedRule struct {
	family       string // nft's word; ip or ip6 from iptables
	table, chain string
	hook         string // where packets meet its chain, "" when other chains lead there
	via          string // the rules that lead to its chain, where routesOf found them
	text         string
	packets      uint64 // that matched it; 0 when nothing counts them
	iptables     bool
}

// word reports whether the rule has one of these words.
func (r savedRule) word(words ...string) bool {
	for _, w := range words {
		if strings.Contains(" "+r.whole()+" ", " "+w+" ") {
			return true
		}
	}
	return false
}

// drops reports whether the verdict is to drop.
func (r savedRule) drops() bool {
	if r.iptables {
		return r.word("-j DROP")
	}
	return r.word("drop")
}

func (r savedRule) untracks() bool   { return r.word("--notrack", "-j NOTRACK", "notrack") }
func (r savedRule) synproxies() bool { return r.word("-j SYNPROXY", "synproxy") }

// savers print the rules of netfilter with their counters. That of x_tables is asked only when it has tables: it would load modules.
var savers = []struct {
	command []string
	names   string // the file with the names of tables, "" to ask in any case
}{
	{[]string{"nft", "-t", "list", "ruleset"}, ""},
	{[]string{"iptables-nft-save", "-c"}, ""},
	{[]string{"ip6tables-nft-save", "-c"}, ""},
	{[]string{"iptables-legacy-save", "-c"}, "ip_tables_names"},
	{[]string{"ip6tables-legacy-save", "-c"}, "ip6_tables_names"},
}

// readSaved asks the tools that are there.
func readSaved(ctx context.Context, h *host) (rules []savedRule, err error) {
	var errs []error
	for _, s := range savers {
		if s.names != "" {
			if names, err := h.read(netFile(s.names)); err != nil || strings.TrimSpace(names) == "" {
				continue
			}
		}
		text, err := h.tool(ctx, s.command[0], s.command[1:]...)
		switch {
		case errors.Is(err, exec.ErrNotFound):
		case err != nil:
			errs = append(errs, err)
		case s.command[0] == "nft":
			rules = append(rules, parseNft(string(text))...)
		default:
			family := "ip"
			if strings.HasPrefix(s.command[0], "ip6") {
				family = "ip6"
			}
			rules = append(rules, parseSaved(family, string(text))...)
		}
	}
	return rules, errors.Join(errs...)
}

var countedRule = regexp.MustCompile(`^\[(\d+):\d+\] -A (\S+) (.*)$`)

// parseSaved reads the output of iptables-save -c, for a family in nft's word.
func parseSaved(family, text string) (rules []savedRule) {
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "*"); is {
			table = name
		}
		m := countedRule.FindStringSubmatch(line)
		if m == nil || strings.Contains(strings.ToLower(line), "floodwall") {
			continue
		}
		r := savedRule{family: family, table: table, chain: m[2], text: m[3], iptables: true}
		r.packets, _ = strconv.ParseUint(m[1], 10, 64) // more than 64 bits there are not
		if _, is := builtin[m[2]]; is || m[2] == "OUTPUT" {
			r.hook = strings.ToLower(m[2])
		}
		rules = append(rules, r)
	}
	return rules
}

var (
	nftHook    = regexp.MustCompile(`^type \S+ hook (\S+) `)
	nftCounter = regexp.MustCompile(`counter packets (\d+) bytes \d+`)
)

// parseNft reads what `nft list ruleset` prints, without the tables of Floodwall and of iptables, which iptables-save prints better.
func parseNft(text string) (rules []savedRule) {
	var r savedRule
	skip, managed := false, map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		switch {
		case len(words) == 4 && words[0] == "table":
			r.family, r.table, skip = words[1], words[2], strings.HasPrefix(words[2], "floodwall")
		case len(words) == 3 && (words[0] == "chain" || words[0] == "set" || words[0] == "map"):
			r.chain, r.hook = "", ""
			if words[0] == "chain" {
				r.chain = words[1]
			}
			if _, is := builtin[r.chain]; is || r.chain == "OUTPUT" {
				managed[r.family+r.table] = true
			}
		case nftHook.MatchString(line):
			r.hook = nftHook.FindStringSubmatch(line)[1]
		case line == "}":
			r.chain = ""
		case r.chain != "" && !skip && line != "":
			r.text, r.packets = line, 0
			if m := nftCounter.FindStringSubmatch(line); m != nil {
				r.packets, _ = strconv.ParseUint(m[1], 10, 64) // likewise
			}
			rules = append(rules, r)
		}
	}
	return slices.DeleteFunc(rules, func(r savedRule) bool {
		_, is := tablePriority[r.table]
		return is && managed[r.family+r.table] && (r.family == "ip" || r.family == "ip6")
	})
}
