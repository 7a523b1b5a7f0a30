// Package policies has the policies of a fleet, signed with a key that no hub has, and brings them to the nodes: to the
// canaries first, and to the rest when these are well. A node applies them in package daemon.
//
//	key, last, took, err := policies.ReadKey(file)
//	order, err := policies.Sign(&policies.Manifest{Version: last + 1}, key)
//	m, err := policies.Open(order, public) // on the node
package policies
