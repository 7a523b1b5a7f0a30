package netfilter

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Replace makes the table of a script, which is of family inet and has no trial, in place of the one of the same name that may be
// there.
func (n *Nft) Replace(ctx context.Context, table, script string) error {
	if err := n.script(ctx, "add table inet "+table, "delete table inet "+table, script); err != nil {
		return fmt.Errorf("loading table %s: %w", table, err)
	}
	return nil
}

// deviceName finds the names of devices in a line of nft, as "eth0" or { "eth0", "eth1" }.
var deviceName = wording.Regexp(`iifname (?:!= )?(?:\{ )?((?:"[^"]+"(?:, )?)+)`)

// quotedName finds each of them.
var quotedName = wording.Regexp(`"([^"]+)"`)

// InputDevices are the devices that the chain input of a table names, in order and each once; nil when there is no such chain.
func (n *Nft) InputDevices(ctx context.Context, table string) (names []string, err error) {
	out, err := n.run(ctx, "", "list", "chain", "inet", table, "input")
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("devices of table %s: %w", table, err)
	}
	for _, line := range deviceName().FindAllStringSubmatch(out, -1) {
		for _, name := range quotedName().FindAllStringSubmatch(line[1], -1) {
			if name[1][len(name[1])-1] != '*' {
				names = append(names, name[1])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
