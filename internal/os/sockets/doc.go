// Package sockets has unix sockets and who is at their other end, the sockets that serve on this host, and the network
// namespace that sockets of the calling thread are in. It speaks no protocol.
package sockets
