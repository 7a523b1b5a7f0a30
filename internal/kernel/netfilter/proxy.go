package netfilter

import (
	"context"
	"fmt"
)

// RetainProxy keeps SYNPROXY at its work on connections that it has started, when the last rule with it goes: it translates
// their timestamps, and conntrack their sequence numbers, for as long as any rule asks for it. The one of this table, a name
// of its own, decides nothing, as no chain leads there. It is no error when the table is there already.
func (n *Nft) RetainProxy(ctx context.Context, table string) error {
	const chain = "begun"
	err := n.script(ctx, "add table inet "+table, "add chain inet "+table+" "+chain, "flush chain inet "+table+" "+chain,
		"add rule inet "+table+" "+chain+` synproxy mss 536 comment "for connections that SYNPROXY began: decides nothing"`)
	if err != nil {
		return fmt.Errorf("keeping SYNPROXY for its connections: %w", err)
	}
	return nil
}
