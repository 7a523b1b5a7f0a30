// SPDX-License-Identifier: Apache-2.0

// Package replica finds out what rules in netfilter do with a packet. The kernel has a test run for BPF programs but not for such rules, so the
// packet is sent to a copy of the rules. The package reads one generation from the kernel and loads it into a new network namespace. It sends the
// packet there once, and reads the counters of the copy. Nothing is counted in the real rules, and no packet leaves the namespace.
//
// The namespace belongs to one thread and has no name. It ends with the thread, also when the process is killed. It has
//
//   - the devices of the policy, as ends of veth pairs, and the VLAN devices on them
//   - the host's own addresses, as the host's routing table has them in table local
//   - the host's settings for forwarding, and a default route
//   - the generation's rules, without the guards of a trial, and witnesses: rules of ours before and after each hook of
//     the generation, which count the packets there
//
// Rules of other firewalls and routes are not copied. Conntrack knows no flow except one that the question asks for. The limits of the copy start
// empty, so the packet exceeds none of them. Reading and loading a set takes as long as listing it: some ten seconds each for a million elements.
// After Limit the answer is an error.
//
//	answer, err := replica.Ask(ctx, replica.Part{Tool: replica.Nft, Name: table, Devices: devices}, frame, packet.Decode(frame))
//	fmt.Print(answer.Dropped, answer.Moved)
package replica
