// SPDX-License-Identifier: Apache-2.0

// Package speaker is the process that speaks BGP with the routers upstream. In: the announcements that the daemon wants (internal/bgp/wire), over a
// unix socket. Out: sessions, announcements, and the FlowSpec routes that the routers sent. The process does not decide about announcements; the
// daemon does (internal/daemon/upstream).
//
// The process parses data from the network, so it has no rights: see rights.go. It stores the wanted announcements in a file, and withdraws each
// announcement at its end, even when the daemon does not run. When the process is killed, its sockets and its sessions end. The routers then remove its
// routes by themselves, after the graceful restart time at the latest.
//
// Read speaker.go first. routes.go makes routes, sessions.go makes sessions with GoBGP, state.go is the file, serve.go is the socket.
//
//	s := speaker.New(state, version, log, noise)
//	go s.Serve(ctx, run) // wire.Client talks to it
//	s.Run(ctx)
package speaker
