// SPDX-License-Identifier: Apache-2.0

// Package sockets creates Unix sockets and identifies their peers, lists the listening sockets of this host, and
// identifies the network namespace of the calling thread. It implements no protocol.
//
//	list, err := sockets.Serving()
//	l, err := sockets.Listen(path, 0o660, gid)
//	uid, pid, err := sockets.Peer(conn)
package sockets
