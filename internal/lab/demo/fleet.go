// This file shows what a fleet is for: three web servers behind a router, a hub, clients and attackers, each in a network
// namespace of its own. All hubs and daemons are processes of this program, as an operator starts them. Out: a Summary with one table.
//
// Read story.go first: it tells what happens. site.go builds the hosts, process.go runs commands in them, phase.go counts,
// line.go fills the line to a node, upstream.go has the router drop that flood.
//
// The demonstration runs in a process with mounts of its own (namespaces.go). The kernel kills all hubs and daemons with it, and its mounts
// and network namespaces end with the last process in them. So nothing is left, however it ends.
//
// It judges Floodwall by what the kernel counts: no datagram of a banned sender may reach a host once the bans are in force, and
// no packet of a client may be dropped. A flood that a host has announced may not pass the router once its rule is in force. How fast the machine is, is said but is no failure.

package demo
