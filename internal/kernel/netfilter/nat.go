package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Translates reports whether something in this network namespace translates addresses or ports: there is a chain of type
// nat of nftables, also one that iptables made, or the table nat of the older iptables. Whether rules are in it is not
// looked at.
func Translates(ctx context.Context) (bool, error) {
	if old, err := oldNAT(); old || err != nil {
		return old, err
	}
	chains, err := natChains()
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
	names, err := os.ReadFile(oldNames(version))
	if errors.Is(err, os.ErrPermission) {
		return true, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("tables of iptables: %w", err)
	}
	return slices.Contains(strings.Fields(string(names)), table), nil
}

// oldNames is the file with the names of the tables of the older iptables.
func oldNames(version string) string {
	return sockets.ProcFile(map[string]string{"4": "ip_tables_names", "6": "ip6_tables_names"}[version])
}

// Offloads reports whether nftables has a flowtable, by which forwarded packets take a way round all chains but ingress.
func Offloads(context.Context) (bool, error) {
	list, err := dumpNft(unix.NFT_MSG_GETFLOWTABLE, unix.NFPROTO_UNSPEC)
	return len(list) > 0, err
}

// natChain is a chain of type nat. The hook is a number of enum nf_inet_hooks.
type natChain struct {
	family, table string
	hook          uint64
}

// natChains lists the chains of type nat.
func natChains() (list []natChain, err error) {
	for family, number := range map[string]uint8{"ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6, "inet": unix.NFPROTO_INET} {
		chains, err := dumpNft(unix.NFT_MSG_GETCHAIN, number)
		if err != nil {
			return nil, err
		}
		for _, c := range chains {
			if c.text(unix.NFTA_CHAIN_TYPE) == "nat" {
				list = append(list, natChain{family, c.text(unix.NFTA_CHAIN_TABLE), c.nested(unix.NFTA_CHAIN_HOOK).number(unix.NFTA_HOOK_HOOKNUM)})
			}
		}
	}
	slices.SortFunc(list, func(a, b natChain) int { return strings.Compare(a.family+" "+a.table, b.family+" "+b.table) })
	return list, nil
}
