// Package datapath keeps a policy in the kernel: it loads programs and fills their maps, attaches them to devices,
// swaps one generation for the next, and reads counters and dynamic sets of the one that runs. It knows no rules: what
// it loads is an image.Image, and what it remembers about it is a manifest that it does not look into.
//
// All state is in one directory of a BPF file system, which several instances can have each of their own:
//
//	netns                 the network namespace whose devices these are
//	FORMAT-2-…            the form of all this
//	alive                 whether there is that namespace still
//	links/DEVICE          the attachment of a device; it holds the program that runs
//	ingress/NUMBER        that of the program for what XDP has passed, by the device's number, when the policy protects
//	                      services on this host
//	egress/NUMBER         that of the program for what leaves, when the policy has a guard
//	generation-N/         program, maps and counters of a generation, and its manifest
//	renewal-N/            while the lists of generation N are exchanged: what takes the place of generation-N
//	trial-N/              while generation N is on trial: what runs in its place, and the deadline
//
// The generation that runs is the one whose program the links hold: there is no second record that could disagree
// after a crash. Counters outlive generations: the next one pins the same map, unless it needs a larger one. So does what
// is known of clients and connections (Inherited).
//
// One more generation is kept, not attached, for Rollback to return to: that which ran before the one that runs. A
// trial adds its own to these two, and decides which goes when it ends. So a change of policy costs the memory of two
// generations, and of three while one is on trial. All others are remains, and removed by the next change.
//
// A generation without a program is a record: a policy that another target runs, whose manifest is kept here.
//
//	state, err := datapath.OpenState(datapath.DefaultDir, true)
//	program, err := datapath.Load(im, nil)
//	devices, err := state.Install(program, manifest, attachments, time.Time{})
package datapath

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -target bpfel -go-package datapath trial ../../../bpf/trial.c -- -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
