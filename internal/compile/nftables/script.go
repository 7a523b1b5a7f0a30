// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"strings"
)

// script returns the text of the whole table.
func (n *generator) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# A firewall as Floodwall wrote it for nftables. It can be kept and changed without Floodwall:
#   load:     nft -f FILE
#   counters: nft list counters table inet %[1]s
#   remove:   nft delete table inet %[1]s
`, n.options.Table)
	tagged := n.tagged()
	if tagged != "" {
		fmt.Fprintf(&b, "#             nft delete table netdev %s\n", n.options.Table)
	}
	for _, l := range n.out.Left {
		much := "is not in it"
		if checkTable[l.Check].lines != nil {
			much = "is not whole"
		}
		wrap(&b, fmt.Sprintf("# The check %s %s: %s.", l.Check, much, l.Why))
	}
	fmt.Fprintf(&b, "table inet %s {\n", n.options.Table)
	for _, name := range n.counters {
		var packets, octets uint64
		if n.options.Counts != nil {
			packets, octets = n.options.Counts(name)
		}
		fmt.Fprintf(&b, "\tcounter %s { packets %d bytes %d }\n", name, packets, octets)
	}
	b.WriteString("\n")
	n.sets.write(&b)
	b.WriteString(n.stateful.String())
	b.WriteString(strings.TrimSuffix(n.chains.String(), "\n"))
	b.WriteString("}\n" + tagged)
	return b.String()
}

// wrap writes text as a comment that is wrapped into lines.
func wrap(b *strings.Builder, text string) {
	const most = 110
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case column+len(word) > most:
			b.WriteString("\n#   ")
			column = 4
		case i > 0:
			b.WriteString(" ")
		}
		b.WriteString(word)
		column += len(word) + 1
	}
	b.WriteString("\n")
}
