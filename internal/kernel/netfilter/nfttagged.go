package netfilter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A generation may have a second table of the same name, of family netdev, for frames that no hook of family inet sees.
// Both are made, change and go in the same transactions.

// listFamilies lists all that the families of a generation's tables have, in one run of nft.
const listFamilies = "list ruleset inet; list ruleset netdev"

// ofTagged is what the names of chains and sets of the table of family netdev begin with in an nftTable.
const ofTagged = "netdev "

// taggedGuard describes the guard's sets in the table of family netdev: there no protocol family is known, and what the
// table is for has one of these types.
const (
	taggedType     = "ether_type"
	taggedElements = "vlan timeout %[1]s, 0x88a8 timeout %[1]s"
)

// hasTagged reports whether a script makes the table of family netdev.
func hasTagged(script, table string) bool {
	return strings.Contains(script, "table netdev "+table+" {")
}

// isTagged reports whether the kernel has the table of family netdev of a generation.
func isTagged(table string) (bool, error) {
	names, err := nftTables("netdev")
	return slices.Contains(names, table), err
}

// listing lists all tables of the families, without elements of sets.
func (n *Nft) listing(ctx context.Context) (string, error) {
	return n.run(ctx, "", "-t", listFamilies)
}

// removal is a script that removes a generation, with a table of family netdev or without: what is not there is made first.
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

// renewal is a script that has the elements of a guard's set last so long from now on. Kernels before 6.12 do not renew the
// time of elements that are there.
func renewal(table, set string, left time.Duration) ([]string, error) {
	tagged, err := isTagged(table)
	return append(onSets("flush", table, set, tagged), enter(table, set, left, tagged)), err
}
