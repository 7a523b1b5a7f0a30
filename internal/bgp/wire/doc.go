// Package wire is what the daemon and `floodwall-bgp` say to each other, over a unix socket that `floodwall-bgp` serves.
//
// `floodwall-bgp` reads what the network sends, and has no rights. The daemon is root, and decides. So the daemon puts
// all that it wants, again and again: sessions and announcements (Wanted). It reads how the sessions are (Status), and
// which FlowSpec routes the routers sent (Received). Each side takes what comes from the other for hostile:
// `floodwall-bgp` announces nothing but what Wanted.Check passes, and who reads Received must check the bytes. It also
// looks who is at the other end (SO_PEERCRED in unix(7)).
//
//	GET /v1/status          Status
//	PUT /v1/announcements   Wanted, answered by Status; it replaces all that was wanted before
//	GET /v1/received        Received
//
// An error is {"error": …, "hint": …} with a status of HTTP of 400 or above.
//
//	status, err := wire.NewClient(wire.DefaultDir).Put(ctx, &wire.Wanted{Announcements: list})
package wire
