// SPDX-License-Identifier: Apache-2.0

// Package node makes a host a node of a fleet. In: bans of this host (Local), and messages of a hub. Out: bans of other nodes, for an Enforcer, and
// statements for the hub. Nothing on this host waits for the hub. The package decides about no ban of its own.
//
// Read agent.go first: Run connects, and one goroutine performs the actions that are due. file.go is the node's configuration, which join.go creates.
// own.go follows the bans of this host. receive.go receives records, and enforce.go applies them to the host. offer.go and sync.go send requests to
// the hub. clock.go follows the fleet's time. status.go is the state of the node.
//
//	file, err := node.Read(state)
//	agent, err := node.New(file, enforcer, log)
//	go agent.Run(ctx)
//	agent.Local(bans, false) // bans that were made on this host
package node
