// Package replica finds out what rules in netfilter do with a packet. The kernel has no test run for them as it has for
// BPF programs, so the packet is put to a copy: what the kernel holds of one generation is read back and loaded into a
// network namespace that is made for the question, the packet is sent there once, and the counters of the copy tell.
// Nothing is counted in the real rules, and no packet leaves the namespace.
//
// The namespace is one thread's, without a name. It is gone when the thread has done with it, also when the process is
// killed. It has
//
//   - the devices of the policy, as ends of veth pairs, and the VLAN devices on them
//   - the host's own addresses, as the host's routing table has them in table local
//   - the host's settings for forwarding, and a default route
//   - the generation's rules, less the guards of a trial, and rules of ours before and behind each of its hooks that
//     count who comes by
//
// Rules of others are not copied, nor are routes, and conntrack knows no flow except one that the question asks for.
// Limits have let nothing pass yet, so that no question exceeds one. To
// read and load sets takes as long as their listing does: a million elements some ten seconds each, and the answer is an
// error when Limit has passed.
//
//	answer, err := replica.Ask(ctx, replica.Part{Tool: replica.Nft, Name: table, Devices: devices}, frame, packet.Decode(frame))
//	fmt.Print(answer.Dropped, answer.Moved)
package replica
