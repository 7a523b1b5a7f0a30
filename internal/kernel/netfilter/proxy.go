// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
)

// RetainProxy keeps SYNPROXY working for its open connections when its last rule is removed. SYNPROXY translates the timestamps of these connections,
// and conntrack their sequence numbers, as long as any rule uses SYNPROXY. The rule in this separate table decides nothing, because no chain jumps to
// it. It is not an error if the table already exists.
func (n *Nft) RetainProxy(ctx context.Context, table string) error {
	const chain = "begun"
	err := n.script(ctx, "add table inet "+table, "add chain inet "+table+" "+chain, "flush chain inet "+table+" "+chain,
		"add rule inet "+table+" "+chain+` synproxy mss 536 comment "for connections that SYNPROXY began: decides nothing"`)
	if err != nil {
		return fmt.Errorf("keeping SYNPROXY for its connections: %w", err)
	}
	return nil
}
