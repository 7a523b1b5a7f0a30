// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"fmt"
	"strings"
)

// DirectedBroadcast is the remark about the broadcast addresses that the policy does not know.
const DirectedBroadcast = "of broadcasts the policy knows 255.255.255.255 only, not those of the host's networks"

// Leaves is the beginning of the remark on a rule that tests the outgoing device. The policy cannot test that device, but the kernel's own rules for
// forwarded packets can.
const Leaves = "packets that leave by "

// leavesBy returns the remark on a rule that tests the outgoing device, and what to write instead.
func leavesBy(not bool, names ...string) string {
	other, behind := "", strings.Join(names, ", ")
	if not {
		other = "another device than "
	}
	return fmt.Sprintf("%s%s%s, for which a policy has no key (write `to:` with the networks behind %s)", Leaves, other, behind, behind)
}

// Effects of rules that no policy has. The texts follow `LINE: RULE:`.
const (
	Marks     = "marks packets, and the policy does not"
	Changes   = "changes packets, and the policy does not: rules see them as they came in"
	FillsSet  = "fills a set from packets, and the policy does not"
	Notracks  = "takes packets out of connection tracking, and the policy leaves them there"
	Helps     = "sets how packets are tracked, and the policy does not"
	Translate = "translates addresses, and the policy does not: it sees packets as they came in; keep it where it is"
	PastRules = "forwards packets past the rules, and the policy does not"
	Remembers = "remembers addresses; a rule of the policy that asks how often one came counts for itself"
)
