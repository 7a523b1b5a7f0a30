// Package manifest has what a generation remembers of its policy: rules with their counter slots, sets, limits and
// protected services; the sums of its counters in XDP and netfilter; and the traffic by which rules are placed. It
// changes nothing in the kernel.
//
//	m, err := manifest.Read(number, text) // as it stands beside a generation
//	name := m.Reason(slot)                // whose counter that is
package manifest
