// SPDX-License-Identifier: Apache-2.0

// Package wire is the protocol between the daemon and `floodwall-bgp`, over a unix socket that `floodwall-bgp` serves.
//
// `floodwall-bgp` parses data from the network, and has no rights. The daemon is root, and decides. So the daemon periodically sends all sessions and
// announcements that it wants (Wanted). It reads the state of the sessions (Status), and the FlowSpec routes that the routers sent (Received). Each
// side treats data from the other as hostile. `floodwall-bgp` announces only data that passes Wanted.Check, and a reader of Received must check the
// bytes. `floodwall-bgp` also checks the user at the other end (SO_PEERCRED in unix(7)).
//
//	GET /v1/status          Status
//	PUT /v1/announcements   Wanted, answered by Status; it replaces all that was wanted before
//	GET /v1/received        Received
//
// An error is {"error": …, "hint": …} with an HTTP status of 400 or above.
//
//	status, err := wire.NewClient(wire.DefaultDir).Put(ctx, &wire.Wanted{Announcements: list})
package wire
