// SPDX-License-Identifier: Apache-2.0

// Package upstream decides what to announce to the routers upstream. In: the running policy, requests of people (`floodwall-bgp announce`), and the
// harm of an attack. Out: the wanted announcements, for `floodwall-bgp` (internal/bgp/wire). The package does not speak BGP: cmd/floodwall-bgp does.
//
// book.go stores the announcements, with their owners and ends. tell.go sends them to the process. ladder.go makes announcements automatically.
//
//	book := upstream.InState(state, bpffs, datapath.DefaultDir)
//	a, err := book.Announce(ctx, u, upstream.Request{Kind: wire.RTBH, Flow: wire.Flow{To: victim}}, time.Now())
//
// # Requests of routers upstream
//
// Routers upstream can ask this host to drop packets, by FlowSpec routes. In: the routes that `floodwall-bgp` has received, each second. Out:
// temporary rules. They are evaluated before the policy's rules, and the kernel ends them.
//
// `floodwall-bgp` parses data from the network, so its output is not trusted. check.go decides which routes are obeyed, by the policy alone.
// attribute.go parses the path attributes of routes. receive_book.go remembers routes while their session is lost, and receiver.go updates the rules.
package upstream
