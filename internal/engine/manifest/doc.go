// SPDX-License-Identifier: Apache-2.0

// Package manifest has the data that a generation stores about its policy: rules with their counter slots, sets, limits and protected services. It
// adds up the counters of a generation in XDP and netfilter, and measures the traffic for the placement of rules. It changes nothing in the kernel.
//
//	m, err := manifest.Read(number, text) // the text that is stored with a generation
//	name := m.Reason(slot)                // the reason that this slot counts
//
// # Protected services
//
// plan.go decides how connections to protected services are answered. It takes a program, the facts about the host (internal/host/facts) and a
// target. It returns the program without the parts that the host or the target does not support, the options that SYN-ACKs announce for each service,
// and notes for the operator. It makes no calls to the kernel.
//
// Read plan.go first. Then read method.go (who makes the cookies), host.go and servers.go (the announced options for services on this host and behind
// it), and notes.go (the notes for the operator).
package manifest
