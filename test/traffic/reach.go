// This file holds the test of what an attacker asks: does a packet that the policy forbids reach a socket behind the
// firewall? It has no code of the product. An adversary's generator makes attempts, each of a few frames; they are put on
// a wire, through the real kernel with a random policy on one of the targets; UDP, UDP-Lite and raw sockets, TCP listeners,
// and TCP connections that were open before the policy are the oracle. Every attempt has a source address of its own, by which what a socket
// receives is traced back to its frames. Data on a connection has the numbers that the application expects, in a frame of any kind. Some services of the
// policies are protected from floods of SYNs: then XDP answers for the listener.
//
// A socket has received what the policy forbids when either holds:
//
//   - Judged as the socket got it, the datagram does not pass. Its protocol, addresses and ports are those that the socket
//     reports, its TCP flags those of the sender's segment; length, TTL, DSCP, VLAN tag and fragment are those that a frame
//     says which begins the datagram, at fragment offset 0. ir.Eval, without checks, passes it for none of these frames. So
//     nothing rests on how Floodwall reads frames, and the sender's datagram counts however it was cut.
//   - Judged frame by frame, some part of the datagram came in by no frame that passes. ir.Eval, with all checks, passes no
//     frame that holds this part; of a datagram in one frame, the frame. XDP answers a SYN to a
//     protected service as soon as it has the frame with the TCP header. Its SYN-ACK shows that this frame passes, and
//     says nothing of further fragments: no socket has received anything.
//
// Three things follow from the targets, and are what the README says of them. On nftables and iptables the second rule
// asks neither for structural checks nor for those that the target reports as left: rules there see what the kernel has
// read, which the first rule judges. Where rules run at filter, and on iptables, the kernel may have put fragments
// together before: then a datagram is judged as a whole by the first rule, and the second does not ask for its later
// fragments. Checks, `length` and `payload` are about frames, so a datagram in fragments is not searched as a whole.
//
// The reverse is tested, too: well-formed attempts of which all frames pass must arrive. Where fragments may have been put together,
// the datagram has to pass as a whole as well.

package traffic
