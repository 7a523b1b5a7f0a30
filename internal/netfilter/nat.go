package netfilter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
)

// Translates reports whether something in this network namespace translates addresses or ports: there is a chain of type
// nat of nftables, also one that iptables made, or the table nat of the older iptables. Whether rules are in it is not
// looked at. Without nft only the latter is found.
func Translates(ctx context.Context) (bool, error) {
	if old, err := oldNAT(); old || err != nil {
		return old, err
	}
	_, chains, err := natChains(ctx)
	return len(chains) > 0, err
}

// Redirects reports whether something in this network namespace sends packets that come in to other destinations: a table
// with a chain of type nat at prerouting has rules that say so, in nftables or made by iptables. Which packets they match is
// not looked at, nor, in the table nat of the older iptables, whether there are any.
func Redirects(ctx context.Context) (bool, error) {
	if old, err := oldNAT(); old || err != nil {
		return old, err
	}
	t, chains, err := natChains(ctx)
	for _, c := range chains {
		if c.Hook != "prerouting" {
			continue
		}
		rules, err := t.run(ctx, "", "--terse", "list", "table", c.Family, c.Table)
		if err != nil {
			return false, fmt.Errorf("listing table %s %s: %w", c.Family, c.Table, err)
		}
		if redirecting.MatchString(rules) {
			return true, nil
		}
	}
	return false, err
}

// redirecting are the words of rules that give a packet another destination, those of iptables among them.
var redirecting = regexp.MustCompile(`(?i)\b(dnat|redirect)\b`)

// oldNAT reports whether the older iptables has the table nat.
func oldNAT() (bool, error) {
	for _, file := range []string{"ip_tables_names", "ip6_tables_names"} {
		names, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("tables of iptables: %w", err)
		}
		if slices.ContainsFunc(bytes.Fields(names), func(name []byte) bool { return string(name) == "nat" }) {
			return true, nil
		}
	}
	return false, nil
}

// natChain is a chain of nftables, as its JSON has it.
type natChain struct{ Family, Table, Type, Hook string }

// natChains lists the chains of type nat, and the tool that did; none without nft, as nobody has made a chain with it.
func natChains(ctx context.Context) (t tool, list []natChain, err error) {
	if t, err = find("nft", nftPackage); err != nil {
		return t, nil, nil
	}
	out, err := t.run(ctx, "", "-j", "list", "chains")
	if err != nil {
		return t, nil, fmt.Errorf("listing chains: %w", err)
	}
	var listing struct {
		Nftables []struct{ Chain *natChain }
	}
	if err := json.Unmarshal([]byte(out), &listing); err != nil {
		return t, nil, fmt.Errorf("reading the JSON of nft: %w", err)
	}
	for _, o := range listing.Nftables {
		if o.Chain != nil && o.Chain.Type == "nat" {
			list = append(list, *o.Chain)
		}
	}
	return t, list, nil
}
