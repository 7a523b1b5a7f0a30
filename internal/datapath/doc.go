// Package datapath keeps a policy in the kernel: it loads programs and fills their maps, attaches them to devices, swaps
// one generation for the next, and reads counters and dynamic sets of the one that runs. It knows no rules: what it
// loads is an xdp.Image, and what it remembers about it is a manifest that it does not look into.
//
// All state is in one directory of a BPF file system, which several instances can have each of their own:
//
//	netns                 the network namespace whose devices these are
//	links/DEVICE          the attachment of a device; it holds the program that runs
//	generation-N/         program, maps and counters of a generation, and its manifest
//
// The generation that runs is the one whose program the links hold: there is no second record that could disagree
// after a crash. Generations that no link holds are remains, and removed by the next apply. Counters outlive generations:
// the next one pins the same map, unless it needs a larger one.
package datapath
