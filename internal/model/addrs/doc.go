// SPDX-License-Identifier: Apache-2.0

// Package addrs has sets of IP addresses and their data structures for the datapath. The first structure is the class table: it maps an address to
// the number that is shared by all addresses in the same sets. The second is the memory of dynamic sets. bpf/classify.h and bpf/dynamic.h read the
// byte layouts of this package. All integers in them are native, and the host is little endian. The package does not access the kernel's maps:
// kernel/datapath gives it the memory.
//
//	set, ignored, err := addrs.ReadFile("blocked.txt", most)
//	listed := set.Contains(netip.MustParseAddr("198.51.100.7"))
package addrs
