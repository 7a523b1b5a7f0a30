// Package flowspec translates between flow specifications (RFC 8955, and RFC 8956 for IPv6), with which BGP speakers tell one
// another which packets to drop, and rules of the policy. Decode and Encode read and write the wire form. Segment makes rules of
// routes that were received, From makes flow specifications of a rule. Both refuse what they cannot translate exactly, so no
// translation drops a packet that the flow specification leaves alone.
package flowspec
