// This file decides how protected services are answered for. In: a program, what the host is (internal/host/facts), a
// target. Out: the program without what the host or the target does not do, what SYN-ACKs announce for each service, and notes
// for the operator. It asks no kernel.
//
// Read plan.go first; then method.go who makes the cookies, host.go and servers.go what is announced for services on this host
// and behind it, notes.go what else the operator should know.

package manifest
