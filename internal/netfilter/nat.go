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
	t, err := find("nft", nftPackage)
	if err != nil {
		return false, nil // nobody has made a chain with it
	}
	out, err := t.run(ctx, "", "-j", "list", "chains")
	if err != nil {
		return false, fmt.Errorf("listing chains: %w", err)
	}
	var listing struct {
		Nftables []struct{ Chain *struct{ Type string } }
	}
	if err := json.Unmarshal([]byte(out), &listing); err != nil {
		return false, fmt.Errorf("reading the JSON of nft: %w", err)
	}
	for _, o := range listing.Nftables {
		if o.Chain != nil && o.Chain.Type == "nat" {
			return true, nil
		}
	}
	return false, nil
}
