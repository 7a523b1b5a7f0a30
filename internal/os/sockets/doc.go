// Package sockets has unix sockets and who is at their other end, the sockets that serve on this host, and the network
// namespace that sockets of the calling thread are in. It speaks no protocol.
//
//	list, err := sockets.Serving()
//	l, err := sockets.Listen(path, 0o660, gid)
//	uid, pid, err := sockets.Peer(conn)
package sockets
