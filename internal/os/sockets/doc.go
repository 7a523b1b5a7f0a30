// Package sockets has unix sockets and who is at their other end, and the sockets that serve on this host. It speaks no
// protocol.
package sockets
