// SPDX-License-Identifier: Apache-2.0

// Package datapath keeps a policy in the kernel. It loads programs and fills their maps, attaches the programs to devices, swaps one generation for
// the next, and reads counters and dynamic sets of the running generation. It knows no rules: it loads an image.Image, and stores a manifest with it,
// whose content it does not interpret.
//
// All state of an instance is in one directory of a BPF file system. Several instances have one directory each:
//
//	netns                 the network namespace of the devices
//	FORMAT-2-…            the format of the directory
//	alive                 whether that namespace still exists
//	links/DEVICE          the attachment of a device; it holds the program that runs
//	ingress/NUMBER        the attachment of the program for packets that XDP has passed, by the index of the device, if the
//	                      policy protects services on this host
//	egress/NUMBER         the attachment of the program for packets that leave, for example if the policy has a guard
//	generation-N/         program, maps and counters of a generation, and its manifest
//	renewal-N/            while the lists of generation N are replaced: the directory that takes the place of generation-N
//	trial-N/              while generation N is on trial: the programs that run in its place, and the deadline
//
// The generation that runs is the one whose program the links hold. There is no second record of it that could disagree after a crash. Counters
// outlive generations: the next generation pins the same map, unless it needs a larger one. The next generation also takes over the known clients and
// connections (Inherited).
//
// One more generation is kept, but not attached: the previous one, to which Rollback returns. A trial adds its own generation to these two. The
// result of the trial decides which one is removed. So a change of policy needs the memory of two generations, and of three during a trial. All other
// generations are remains, and the next change removes them.
//
// A generation without a program is a record: a policy that runs on another target, whose manifest is stored here.
//
//	state, err := datapath.OpenState(datapath.DefaultDir, true)
//	program, err := datapath.Load(im, nil)
//	devices, err := state.Install(program, manifest, attachments, time.Time{})
//
// # Connections of protected services
//
// flows.go has the table of the connections of protected services, which bpf/flow.h describes. Programs pass the segments of the
// connections in this table.
//
// A program that starts to protect services knows none of their connections. A generation to which Rollback returns knows none of the connections
// that were opened since it ran. The kernel knows all of them, and Learn (preload.go) reads them at once. Otherwise the program would ask the kernel
// about each connection when a packet arrives, at a limited rate.
package datapath

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -target bpfel -go-package datapath trial ../../../bpf/trial.c -- -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
