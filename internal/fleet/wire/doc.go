// SPDX-License-Identifier: Apache-2.0

// Package wire defines the messages between nodes and hubs. In: bytes from the network, which anybody may have sent. Out: messages, or an error. It
// checks every length before it allocates. It opens no connections, and stores nothing on disk.
//
// subject.go has the subjects, message.go the messages, cursor.go reads bytes. A message begins with the version of its format. Numbers are varints
// of encoding/binary, times are milliseconds since 1970 in UTC, and addresses are in network byte order.
//
//	batch, err := wire.ParseBatch(data)
//	table := wire.Table{}
//	for _, stored := range batch.Records {
//		merged, changed := table.Merge(stored.Record)
//	}
//
// # Bans of a fleet
//
// Merge decides which bans are in force in a fleet. In: statements of nodes about prefixes, which may arrive late, twice and in any order. Out: the
// end of the ban of each prefix. Merge uses no network, and no clock except the time in its arguments.
//
// Read record.go first: a Record has all statements about a prefix, and Merge merges two records. effect.go decides until when a prefix is banned,
// rules.go decides which statements are refused, and table.go has the records of all prefixes.
//
// Merge is commutative, associative and idempotent. So all hosts that have received the same statements have the same records. Statements are ordered
// by their numbers (Seq), and never by the time of their arrival.
package wire
