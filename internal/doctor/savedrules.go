// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"os/exec"
	"strings"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// savedRule is a rule of another firewall, in the text form of that firewall's tool.
type savedRule struct {
	netfilter.Listed
	via string // the texts of the rules on the path to its chain, set by routesOf
}

// word reports whether the rule contains one of the given words.
func (r savedRule) word(words ...string) bool {
	for _, w := range words {
		if strings.Contains(" "+r.whole().Text+" ", " "+w+" ") {
			return true
		}
	}
	return false
}

// drops reports whether the rule's verdict is drop.
func (r savedRule) drops() bool {
	if r.Iptables {
		return r.word("-j DROP")
	}
	return r.word("drop")
}

func (r savedRule) untracks() bool   { return r.word("--notrack", "-j NOTRACK", "notrack") }
func (r savedRule) synproxies() bool { return r.word("-j SYNPROXY", "synproxy") }

// savers are the tools that print netfilter's rules with counters. Tools of x_tables run only if there are tables, because the tools would load
// kernel modules.
var savers = []struct {
	command []string
	names   string // the file with the names of tables; "": always run the tool
}{
	{[]string{"nft", "-t", "list", "ruleset"}, ""},
	{[]string{"iptables-nft-save", "-c"}, ""},
	{[]string{"ip6tables-nft-save", "-c"}, ""},
	{[]string{"iptables-legacy-save", "-c"}, "ip_tables_names"},
	{[]string{"ip6tables-legacy-save", "-c"}, "ip6_tables_names"},
}

// readSaved runs the installed tools and returns the rules of other firewalls.
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
			rules = append(rules, ownedByOthers(h, netfilter.ListedByNft(string(text)))...)
		default:
			family := "ip"
			if strings.HasPrefix(s.command[0], "ip6") {
				family = "ip6"
			}
			rules = append(rules, ownedByOthers(h, netfilter.ListedByIptables(family, string(text)))...)
		}
	}
	return rules, errors.Join(errs...)
}

// ownedByOthers returns the rules that are not Floodwall's. It leaves out nft's listing of iptables tables, because the listing of iptables-save is
// better.
func ownedByOthers(h *host, list []netfilter.Listed) (rules []savedRule) {
	known, err := h.rules()
	for _, r := range list {
		own := strings.HasPrefix(r.Table, "floodwall") || r.Iptables && strings.Contains(strings.ToLower(r.Chain+" "+r.Text), "floodwall")
		if !own && (r.Iptables || err != nil || !known.byIptables(place{nftables, r.Family, r.Table})) {
			rules = append(rules, savedRule{Listed: r})
		}
	}
	return rules
}
