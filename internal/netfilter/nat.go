package netfilter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Translates reports whether something in this network namespace translates addresses or ports: there is a chain of type
// nat of nftables, also one that iptables made, or the table nat of the older iptables. Whether rules are in it is not
// looked at. Without nft only the latter is found.
func Translates(ctx context.Context) (bool, error) {
	for _, file := range []string{"ip_tables_names", "ip6_tables_names"} {
		names, err := os.ReadFile("/proc/thread-self/net/" + file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("tables of iptables: %w", err)
		}
		if slices.ContainsFunc(bytes.Fields(names), func(name []byte) bool { return string(name) == "nat" }) {
			return true, nil
		}
	}
	return has(ctx, "chains", func(o object) bool { return o.Chain != nil && o.Chain.Type == "nat" })
}

// Offloads reports whether nftables has a flowtable, by which forwarded packets take a way round all chains but ingress.
func Offloads(ctx context.Context) (bool, error) {
	return has(ctx, "flowtables", func(o object) bool { return o.Flowtable != nil })
}

// object is something that nft lists, as far as it is looked at.
type object struct {
	Chain     *struct{ Type string }
	Flowtable *struct{}
}

// has reports whether nft lists something. Without nft there is nothing.
func has(ctx context.Context, what string, is func(object) bool) (bool, error) {
	t, err := find("nft", nftPackage)
	if err != nil {
		return false, nil // nobody has made anything with it
	}
	out, err := t.run(ctx, "", "-j", "list", what)
	if err != nil {
		return false, fmt.Errorf("listing %s: %w", what, err)
	}
	var listing struct{ Nftables []object }
	if err := json.Unmarshal([]byte(out), &listing); err != nil {
		return false, fmt.Errorf("reading the JSON of nft: %w", err)
	}
	return slices.ContainsFunc(listing.Nftables, is), nil
}
