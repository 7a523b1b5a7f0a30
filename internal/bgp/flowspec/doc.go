// SPDX-License-Identifier: Apache-2.0

// Package flowspec translates flow specifications (RFC 8955, and RFC 8956 for IPv6) to rules of the policy. With flow specifications, BGP speakers
// tell one another which packets to drop. Decode parses the wire format, and Segment makes rules from received routes. Both refuse flow
// specifications that they cannot translate exactly. So no rule drops a packet that its flow specification does not match. Package speaker writes the
// wire format, with GoBGP.
//
//	flow, rest, err := flowspec.Decode(nlri, false) // of an UPDATE
//	rules := flowspec.Segment(routes, peers)        // rules of the policy, which drop no packet of the peers
package flowspec
