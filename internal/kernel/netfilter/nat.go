package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/os/sockets"
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

// oldNAT reports whether the older iptables has the table nat.
func oldNAT() (bool, error) {
	v4, err := oldTable("4", "nat")
	if v4 || err != nil {
		return v4, err
	}
	return oldTable("6", "nat")
}

// oldTable reports whether the older iptables has a table, for a version of IP. To ask the tool would make the table. Only
// root may read their names, whatever capabilities others have: for those a table counts as there, so that none is missed.
func oldTable(version, table string) (bool, error) {
	file := map[string]string{"4": "ip_tables_names", "6": "ip6_tables_names"}[version]
	names, err := os.ReadFile(sockets.ProcFile(file))
	if errors.Is(err, os.ErrPermission) {
		return true, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("tables of iptables: %w", err)
	}
	return slices.Contains(strings.Fields(string(names)), table), nil
}

// Offloads reports whether nftables has a flowtable, by which forwarded packets take a way round all chains but ingress.
func Offloads(ctx context.Context) (bool, error) {
	_, objects, err := listed(ctx)
	return slices.ContainsFunc(objects, func(o object) bool { return o.Flowtable != nil }), err
}

// natChains lists the chains of type nat, and the tool that did.
func natChains(ctx context.Context) (t tool, list []natChain, err error) {
	t, objects, err := listed(ctx)
	for _, o := range objects {
		if o.Chain != nil && o.Chain.Type == "nat" {
			list = append(list, *o.Chain)
		}
	}
	return t, list, err
}

// object is something that nft lists, as its JSON has it and as far as it is looked at.
type object struct {
	Chain     *natChain
	Flowtable *struct{}
}

type natChain struct{ Family, Table, Type, Hook string }

// listed are the chains and flowtables that nft lists, and the tool that did; nothing without nft, as nobody has made anything with it.
func listed(ctx context.Context) (t tool, objects []object, err error) {
	if t, err = find("nft", nftPackage); err != nil {
		return t, nil, nil
	}
	out, err := t.unchanged(ctx, nftState, "-j", "list chains; list flowtables")
	if err != nil {
		return t, nil, fmt.Errorf("listing chains and flowtables: %w", err)
	}
	objects, err = readObjects[object](out)
	return t, objects, err
}
