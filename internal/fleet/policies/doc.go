// SPDX-License-Identifier: Apache-2.0

// Package policies distributes the policies of a fleet to the nodes, signed with a key that no hub has. The canaries get a version first. The other
// nodes get the version when the canaries work well with it. Package daemon applies the policies on a node.
//
//	key, last, took, err := policies.ReadKey(file)
//	order, err := policies.Sign(&policies.Manifest{Version: last + 1}, key)
//	m, err := policies.Open(order, public) // on the node
package policies
