// This file is what a fleet sees together. In: the summary that each node makes of its last ten seconds. Out: one view of all: the rates,
// which nodes are under attack, attacks that several nodes see as one, and the sources that send most.
//
// summary.go has what a node says and which of it is believed, board.go keeps the latest summary of each node, view.go merges them.

package wire
