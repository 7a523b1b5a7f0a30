// This file describes the fleet's common view of the traffic. In: the summary that each node makes of its last ten seconds. Out: one view of all
// nodes: the rates, the nodes under attack, attacks that several nodes see as one, and the sources that send most.
//
// summary.go defines a node's summary and its checks, board.go stores the latest summary of each node, view.go merges them.

package wire
