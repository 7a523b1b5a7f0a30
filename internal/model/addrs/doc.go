// Package addrs holds sets of IP addresses and what is made of them for the datapath: the class table, which maps an
// address to the number shared by all addresses in the same sets, and the memory of dynamic sets. The byte layouts in
// this package are read by bpf/classify.h and bpf/dynamic.h; all integers in them are native, and the host is little endian.
// It touches no map of the kernel: kernel/datapath hands it the memory.
//
//	set, ignored, err := addrs.ReadFile("blocked.txt", most)
//	listed := set.Contains(netip.MustParseAddr("198.51.100.7"))
package addrs
