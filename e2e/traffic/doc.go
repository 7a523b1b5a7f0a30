// SPDX-License-Identifier: Apache-2.0

// Package traffic has the tests that use real connections during floods. They test SYN protection, the service for legitimate clients, and whether a
// frame of an adversary reaches a socket although the policy forbids it. A test judges by the data that sockets receive. The tests of verdicts on
// single packets are in internal/compile.
//
// A new test starts with inScene of scene_test.go. It makes hosts and a server to flood. For a protected service, a test starts with synInScene of
// syn_scene_test.go; auto_test.go is an example. The last section describes how the adversary's frames are judged.
//
// # Protected services
//
// The files syn_*_test.go test the protection against floods of SYNs and ACKs. Both sides use real TCP: there are Linux clients, a scripted peer for
// misbehavior that Linux does not show, and servers on the protected host or behind it.
//
// # What reaches a socket
//
// reach_test.go tests whether a packet that the policy forbids reaches a socket behind the firewall. It does not build frames with code of the
// product. A generator makes an adversary's attempts, each of a few frames. The test sends them over a link through the real kernel, with a random
// policy on one of the targets. UDP, UDP-Lite and raw sockets, TCP listeners, and TCP connections that were open before the policy receive the data.
// Every attempt has a source address of its own, which links the data that a socket receives to the frames of the attempt. Data on a connection has
// the sequence numbers that the application expects, in a frame of any kind. Some services of the policies are protected from floods of SYNs: XDP
// then answers for the listener.
//
// A socket has received forbidden data if either of the following holds:
//
//   - The datagram as the socket received it does not pass. Its protocol, addresses and ports are those that the socket
//     reports. Its TCP flags are those of the sender's segment. Its length, TTL, DSCP, VLAN tag and fragment are those of a
//     frame with the start of the datagram, at fragment offset 0. ir.Eval, without checks, passes the datagram for none of these frames.
//     This rule does not depend on how Floodwall reads frames. It judges the sender's datagram, however it was fragmented.
//   - A part of the datagram did not come in any frame that passes: ir.Eval, with all checks, passes no frame with this part.
//     A datagram in one frame has one part. XDP answers a SYN to a protected service as soon as it has the frame with the TCP
//     header. Its SYN-ACK shows only that this frame passes. It says nothing about further fragments, because no socket
//     has received anything.
//
// The targets have three limits, which the README documents. On nftables and iptables, rules see the packet as the kernel decodes it. The first
// condition above judges this packet. So on these targets the second condition ignores structural checks, and the checks that the target reports as
// left out. If rules run at filter, and on iptables, the kernel may have reassembled fragments before the rules. Then the first condition judges the
// datagram as a whole, and the second one ignores its later fragments. Checks, `length` and `payload` apply to frames, so a fragmented datagram is not
// searched as a whole.
//
// The test also checks that well-formed attempts arrive if all their frames pass. If fragments may have been reassembled, the datagram must also pass
// as a whole.
package traffic
