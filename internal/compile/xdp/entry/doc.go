// SPDX-License-Identifier: Apache-2.0

// Package entry generates the entry of the XDP program for a policy: a parser for usual frames that reads the headers
// that the policy needs, and the policy's rules, specialized for each kind of frame. Frames of other shapes, and
// decisions other than pass and drop, go to general() of bpf/floodwall.c, which can decide every frame. The package is
// not a second compiler: package xdp generates the rules for all other frames, and the content of maps.
//
// Usual frames are Ethernet with at most one VLAN tag, IPv4 without options or IPv6 without extension headers, not a
// fragment, and TCP, UDP, ICMP or ICMPv6. Each kind has a section of code: first checks, in the order in which they are
// reported, so that the first that fails is the reason; then the rules that packets of this kind can match.
//
// Read generate.go first, then section.go. The number of instructions decides the speed: a frame that is not in the
// cache takes about 70 ns, during which a CPU executes some 150 instructions at no further cost.
//
//	e := entry.Generate(entry.Input{Program: program, Decisions: decisions})
//	im.Entry = e.Insns // the body of floodwall()
//	e.Fill(records)    // for each class of sources, the rules that are left
package entry
