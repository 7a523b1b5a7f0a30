// Package node makes a host a node of a fleet. In: what this host bans (Local), and what a hub sends. Out: bans of other nodes, for an
// Enforcer, and statements for the hub. Nothing on this host waits for the hub. It bans nobody itself.
//
// Read agent.go first: Run connects, and one goroutine does what is due. file.go is what a node knows of its fleet, join.go gets it.
// own.go follows the bans of this host, receive.go takes records, enforce.go brings the host to them, offer.go and sync.go talk to the
// hub, clock.go follows its time, status.go says how it stands.
//
//	file, err := node.Read(state)
//	agent, err := node.New(file, enforcer, log)
//	go agent.Run(ctx)
//	agent.Local(bans, false) // what this host has banned
package node
