// This file holds the executed instructions of each kind of packet under bounds. They are counted by an interpreter of
// the loaded program (internal/lab/guard), so the figures are the same on every machine with the same kernel, idle or not.
//
// How long a program takes is no subject of it: `bench program` and `bench drop` measure that.

package guard
