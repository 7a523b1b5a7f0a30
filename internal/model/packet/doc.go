// SPDX-License-Identifier: Apache-2.0

// Package packet defines how Floodwall parses a frame: the fields that rules test, and the checks that the frame fails.
// Decode is the reference for the tests of the C parser in bpf/. Parse and Frame build frames from one line of text,
// for tests and for explain. The package sends and receives no packets.
//
//	p := packet.Decode(frame)
//	port := p.Value[packet.DPort]
//	spec, err := packet.Parse("tcp 198.51.100.7:999 > 192.0.2.1:80 S") // as `explain` takes it
package packet
