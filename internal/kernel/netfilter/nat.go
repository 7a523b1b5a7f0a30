// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Translates reports whether this network namespace may translate addresses or ports. It returns true if nftables has a chain of type nat, including
// chains of iptables-nft, or if iptables-legacy has the table nat. It does not check whether these have rules.
func Translates(ctx context.Context) (bool, error) {
	if old, err := oldNAT(); old || err != nil {
		return old, err
	}
	chains, err := natChains()
	return len(chains) > 0, err
}

// oldNAT reports whether iptables-legacy has the table nat.
func oldNAT() (bool, error) {
	v4, err := oldTable("4", "nat")
	if v4 || err != nil {
		return v4, err
	}
	return oldTable("6", "nat")
}

// oldTable reports whether iptables-legacy has a table, for an IP version. It does not run the tool, because the tool would create the table. Only
// root may read the names of the tables, whatever the capabilities are. For other users oldTable returns true, so that no table is missed.
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

// oldNames returns the path of the file with the names of iptables-legacy's tables.
func oldNames(version string) string {
	return sockets.ProcFile(map[string]string{"4": "ip_tables_names", "6": "ip6_tables_names"}[version])
}

// Offloads reports whether nftables has a flowtable. Forwarded packets of connections in a flowtable bypass all chains except ingress.
func Offloads(context.Context) (bool, error) { return nftable.HasFlowtable() }

// natChains lists the chains of type nat in the families of IP.
func natChains() (list []*nftable.Chain, err error) {
	for _, family := range []uint8{unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		chains, err := nftable.Chains(family, "")
		if err != nil {
			return nil, err
		}
		list = append(list, slices.DeleteFunc(chains, func(c *nftable.Chain) bool { return c.Type != "nat" })...)
	}
	return list, nil
}
