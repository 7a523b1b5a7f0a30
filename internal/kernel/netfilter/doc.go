// Package netfilter puts a compiled policy into nftables, or into iptables with ipset, through the system's own tools,
// in one transaction. It also keeps conntrack strict while a policy needs that. It knows no rules of a policy:
// compile/nftables and compile/iptables write the scripts.
//
// In nftables a generation is one table of family inet, and perhaps one of family netdev of the same name. In iptables
// it is a set of user chains of the tables raw and filter in both families, ipsets, and jumps to the chains from
// built-in ones, which are called hooks here. Names tell generations from other people's rules; nothing else is
// touched, and nothing is flushed.
//
// A change takes these steps, and whichever of them is the last that this process lives to do, the old generation or
// the new one decides:
//
//  1. The new generation is loaded inert: a guard at its entry, which asks a set named trial, lets all packets by.
//  2. What the kernel holds is read back and compared with what was asked.
//  3. Elements with a timeout enter the set trial: the new generation decides, beside the old one.
//  4. A guard with a set named superseded lets all packets by the old generation, or the old one is removed.
//     The set has its elements, with timeouts, before step 3, and before anything asks it: step 4 may take as long as it will.
//
// Between 3 and 4, some milliseconds, both decide and a packet passes when both pass it. So a packet on its way from
// one chain to the next while the generations change cannot slip through between them. When step 4 is never done, the
// elements expire.
//
// A trial ends in the same way. The elements of both sets carry timeouts, and the kernel compares them with the clock
// at each lookup (nft_set_elem_expired in net/netfilter/nft_set_hash.c, ip_set_timeout_expired in
// net/netfilter/ipset/ip_set_hash_gen.h), so that the old generation decides again on time with every process dead.
// Those of superseded expire a second earlier: in that second both generations decide.
//
// The caller holds a lock: two changes at a time are not provided for.
//
//	nft, err := netfilter.FindNft(ctx)
//	err = nft.Load(ctx, table, before, time.Minute) // on trial
//	counts, err := nft.Counters(ctx, name)
package netfilter
