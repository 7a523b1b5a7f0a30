// Package hub is the middle of a fleet. In: what nodes say (internal/fleet/wire) over NATS. Out: one record for each
// prefix, kept in a stream of JetStream and sent to all nodes. The hub believes nodes nothing that they may not say. It
// applies no policy, and has no key that signs one.
//
// Read hub.go first: Run starts the parts. config.go is the state directory, made by init.go. server.go embeds the NATS server, and
// auth.go says who may connect and publish what. members.go knows the nodes. intake.go takes what nodes say, keep.go writes it to the
// stream, view.go follows the stream and answers nodes that have missed something. admin.go answers the commands.
//
// The stream has one message for a prefix. Several hubs write to it, each on the condition that nobody else has written meanwhile,
// so all records have one order.
//
//	c, err := hub.Read(dir)
//	err = hub.Run(ctx, c, log)
package hub
