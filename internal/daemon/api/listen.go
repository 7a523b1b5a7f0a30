// This file gives the API its sockets. In: a directory, and an API (internal/daemon/api). Out: a server on read.sock and
// control.sock there. It says who may connect, how many connections there are, and how long a client may take; what is asked
// and answered is the API's.
//
// Read listen.go first. sockets.go makes the two sockets, conns.go bounds connections.

package api
