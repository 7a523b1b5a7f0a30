// Package manifest has what a generation remembers of its policy: rules with their counter slots, sets, limits and
// protected services; the sums of its counters in XDP and netfilter; and the traffic by which rules are placed. It
// changes nothing in the kernel.
package manifest
