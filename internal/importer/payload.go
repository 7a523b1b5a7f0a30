// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// asked is a set of restrictions on the tests of packet bytes that an import uses.
type asked uint8

const (
	allBytes asked = iota
	noTexts        // only bytes at fixed places, and no searches for texts: only XDP can search, and XDP runs before netfilter knows the connection of a packet
	noBytes
)

// Import makes a policy of files. The policy gives packets that come in from outside the same verdicts as the files' rules:
//   - base chains are evaluated in the kernel's order, and user chains where rules jump to them; the result is rules of which the first match decides;
//   - rules that differ in one part, such as an address, become one rule; rules for IPv4 and IPv6 become one rule for both;
//   - a rule without equivalent is left out in such a way that the rules after it keep their meaning, and is reported. Tests of bytes are also left out
//     if no target could run a policy with them, because they would come after a test of the connection tracking state.
//
// An error is an InputError if a file has another format than stated, or is incomplete.
func Import(ctx context.Context, sources []saved.Source, o Options) (*Result, error) {
	first, err := importOnce(ctx, sources, o, allBytes)
	if err != nil || first.Unfit == "" || !first.bytes {
		return first, err
	}
	for _, less := range []asked{noTexts, noBytes} {
		if r, err := importOnce(ctx, sources, o, less); err != nil || r.Unfit == "" {
			return r, err
		}
	}
	return first, nil
}

// askLess replaces the tests of bytes that the import does not use by tests without equivalent. It reports whether any rule tests bytes.
func askLess(rs *saved.Ruleset, less asked) (any bool) {
	eachOf(rs, func(r *saved.Rule) {
		for i := range r.Alts {
			c := &r.Alts[i]
			any = any || len(c.Payload) > 0
			taken := func(p saved.Payload) bool { return less == noBytes || less == noTexts && len(p.Texts) > 0 }
			if slices.ContainsFunc(c.Payload, taken) {
				c.Payload = slices.DeleteFunc(slices.Clone(c.Payload), taken)
				*c = c.WithUnknown("bytes of the packet, which the policy reads before what other rules ask for")
			}
		}
	})
	return any
}
