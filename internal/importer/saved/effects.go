package saved

// DirectedBroadcast says what is left out where broadcasts are meant.
const DirectedBroadcast = "of broadcasts the policy knows 255.255.255.255 only, not those of the host's networks"

// What rules do that no policy does. The words follow `LINE: RULE:`.
const (
	Marks     = "marks packets, and the policy does not"
	Changes   = "changes packets, and the policy does not: rules see them as they came in"
	FillsSet  = "fills a set from packets, and the policy does not"
	Notracks  = "takes packets out of connection tracking, and the policy leaves them there"
	Helps     = "sets how packets are tracked, and the policy does not"
	Translate = "translates addresses, and the policy does not: it sees packets as they came in; keep it where it is"
	Remembers = "remembers addresses; a rule of the policy that asks how often one came counts for itself"
)
