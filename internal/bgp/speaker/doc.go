// Package speaker is the process that speaks BGP with the routers upstream. In: what the daemon wants
// (internal/bgp/wire), over a unix socket. Out: sessions, announcements, and the FlowSpec routes that the routers sent.
// It decides no announcement: the daemon does (internal/daemon/upstream).
//
// It reads what the network sends, and so has no rights: see rights.go. It keeps what is wanted in a file, and ends each announcement
// at its end, whoever else lives. When it is killed, its sessions end with its sockets, and the routers remove its routes by
// themselves, after the time of graceful restart at the latest.
//
// Read speaker.go first. routes.go makes routes, sessions.go sessions with GoBGP, state.go the file, serve.go the socket.
//
//	s := speaker.New(state, version, log, noise)
//	go s.Serve(ctx, run) // wire.Client talks to it
//	s.Run(ctx)
package speaker
