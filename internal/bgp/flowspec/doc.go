// Package flowspec makes rules of the policy of flow specifications (RFC 8955, and RFC 8956 for IPv6), with which BGP speakers tell one
// another which packets to drop. Decode reads the wire form, and Segment makes rules of routes that were received. Both refuse what they
// cannot translate exactly, so no rule drops a packet that the flow specification leaves alone. Package speaker writes the wire form, with
// GoBGP.
//
//	flow, rest, err := flowspec.Decode(nlri, false) // of an UPDATE
//	rules := flowspec.Segment(routes, peers)        // rules of the policy, which drop no packet of the peers
package flowspec
