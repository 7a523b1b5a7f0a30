package saved

import (
	"fmt"
	"strings"
)

// DirectedBroadcast says what is left out where broadcasts are meant.
const DirectedBroadcast = "of broadcasts the policy knows 255.255.255.255 only, not those of the host's networks"

// Leaves begins what is said of a rule that asks for the device by which packets leave: the kernel's own rules for forwarded packets know it.
const Leaves = "packets that leave by "

// leavesBy says that a rule asks for the device by which a packet leaves, and what to write in its place.
func leavesBy(not bool, names ...string) string {
	other, behind := "", strings.Join(names, ", ")
	if not {
		other = "another device than "
	}
	return fmt.Sprintf("%s%s%s, for which a policy has no key (write `to:` with the networks behind %s)", Leaves, other, behind, behind)
}

// What rules do that no policy does. The words follow `LINE: RULE:`.
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
