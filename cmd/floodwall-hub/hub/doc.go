// SPDX-License-Identifier: Apache-2.0

// Package hub is the server of a fleet. In: statements of nodes (internal/fleet/wire) over NATS. Out: one record for each prefix, stored in a stream
// of JetStream and sent to all nodes. The hub checks that nodes make only statements that they may make. It applies no policy, and has no key that
// signs policies.
//
// Read hub.go first: Run starts the parts. config.go is the state directory, which init.go makes. server.go embeds the NATS server, and auth.go
// decides who may connect and publish. members.go has the nodes. intake.go accepts statements of nodes, and keep.go writes them to the stream. view.go
// follows the stream and sends records to nodes that have missed them. admin.go answers the commands.
//
// The stream has one message for each prefix. Several hubs write to the stream. A write succeeds only if no other hub has written in the meantime, so
// all records are in one order.
//
//	c, err := hub.Read(dir)
//	err = hub.Run(ctx, c, log)
package hub
