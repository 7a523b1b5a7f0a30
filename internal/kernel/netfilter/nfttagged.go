// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// A generation may have a second table of the same name, of family netdev. It is for frames that no hook of family inet sees. Both tables are
// created, changed and removed in the same transactions.

// ofTagged is the prefix of the names of the netdev table's chains and sets in an nftTable.
const ofTagged = "netdev "

// taggedType and taggedElements describe the guards' sets in the netdev table. The protocol family is not known there. All frames for this table have
// one of the EtherTypes in taggedElements.
const (
	taggedType     = "ether_type"
	taggedElements = "vlan timeout %[1]s, 0x88a8 timeout %[1]s"
)

// hasTagged reports whether a script creates the netdev table.
func hasTagged(script, table string) bool {
	return strings.Contains(script, "table netdev "+table+" {")
}

// isTagged reports whether the kernel has the netdev table of a generation.
func isTagged(table string) (bool, error) { return nftable.Has(unix.NFPROTO_NETDEV, table) }

// removal returns a script that removes a generation with or without a netdev table. The script first creates a missing netdev table, so that it can
// delete it.
func removal(table string) []string {
	return []string{"delete table inet " + table, "add table netdev " + table, "delete table netdev " + table}
}

// guardTagged is guard for the table of family netdev.
func guardTagged(table, set, operator string, chains []string) []string {
	return append([]string{fmt.Sprintf("add set netdev %s %s { type %s; flags timeout; }", table, set, taggedType)},
		askTagged(table, set, operator, chains)...)
}

// askTagged is ask for the table of family netdev.
func askTagged(table, set, operator string, chains []string) (lines []string) {
	for _, chain := range chains {
		lines = append(lines, fmt.Sprintf("insert rule netdev %s %s meta protocol %s @%s accept comment %q",
			table, chain, operator, set, guardComment))
	}
	return lines
}

// renewal returns a script that sets the time left of the elements of a guard's set. The script removes the elements first, because kernels before
// 6.12 do not renew the timeout of existing elements.
func renewal(table, set string, left time.Duration) ([]string, error) {
	tagged, err := isTagged(table)
	return append(onSets("flush", table, set, tagged), enter(table, set, left, tagged)), err
}
