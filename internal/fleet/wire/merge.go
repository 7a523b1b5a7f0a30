// This file says which bans hold in a fleet. In: statements of nodes about prefixes, which may come late, twice and in any
// order. Out: for each prefix until when it is banned. It knows no network and no clock but the time that it is told.
//
// Read record.go first: a Record has all that was said of a prefix, and Merge joins two of them. effect.go tells until when a
// prefix is banned, rules.go which statements are refused, and table.go holds the records of all prefixes.
//
// Merge is commutative, associative and idempotent, so all who have heard the same statements hold the same records. The order
// of statements is that of their numbers (Seq), and never that of their arrival.

package wire
