// Package wire is what nodes and hubs send each other. In: bytes from the network, which anybody may have written. Out: messages,
// or an error. It bounds every length before it allocates. It connects nowhere, and keeps nothing on disk.
//
// subject.go has the subjects, message.go the messages, cursor.go reads bytes. A message begins with the version of its form.
// Numbers are varints of encoding/binary, times are milliseconds since 1970 in UTC, and addresses are in network byte order.
//
//	batch, err := wire.ParseBatch(data)
//	table := wire.Table{}
//	for _, stored := range batch.Records {
//		merged, changed := table.Merge(stored.Record)
//	}
package wire
