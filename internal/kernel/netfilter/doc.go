// SPDX-License-Identifier: Apache-2.0

// Package netfilter loads a compiled policy into nftables, or into iptables with ipset, through the system's own tools, in one transaction. It reads
// the content of nftables directly from the kernel (package nftable), not through nft. It also keeps conntrack strict while a policy needs that. It
// knows no rules of a policy: compile/nftables and compile/iptables write the scripts.
//
// In nftables a generation is one table of family inet, and possibly one of family netdev with the same name. In iptables it is a set of user chains
// of the tables raw and filter in both families, ipsets, and jumps from built-in chains to its chains. These jumps are called hooks here. Generations
// are distinguished from other rules by their names. Nothing else is changed, and nothing is flushed.
//
// A change takes these steps. If this process dies after any step, either the old generation or the new one decides:
//
//  1. The new generation is loaded inert: a guard at its start, which looks up a set named trial, makes all packets bypass it.
//  2. The content of the kernel is read back and compared with the script.
//  3. Elements with a timeout are added to the set trial: the new generation decides, beside the old one.
//  4. A guard with a set named superseded makes all packets bypass the old generation, or the old one is removed.
//     The set gets its elements, with timeouts, before step 3, and before any rule looks it up. So step 4 may take any time.
//
// Between steps 3 and 4, for some milliseconds, both generations decide, and a packet passes only if both pass it. So a packet that is between two
// chains during the change cannot bypass both generations. If step 4 is never done, the elements expire.
//
// A trial ends in the same way. The elements of both sets have timeouts, and the kernel compares them with the clock at each lookup
// (nft_set_elem_expired in net/netfilter/nft_set_hash.c, ip_set_timeout_expired in net/netfilter/ipset/ip_set_hash_gen.h). So the old generation
// decides again on time, also if every process is dead. The elements of superseded expire a second earlier. In that second both generations decide.
//
// The caller must hold a lock: two changes at the same time are not supported.
//
//	nft, err := netfilter.FindNft(ctx)
//	err = nft.Load(ctx, table, before, time.Minute) // on trial
//	counts, err := nft.Counters(ctx, name)
package netfilter
