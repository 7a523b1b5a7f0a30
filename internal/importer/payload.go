package importer

import (
	"context"
	"slices"

	"github.com/floodwall/floodwall/internal/importer/saved"
)

// asked is which tests of bytes an import takes from the rules.
type asked uint8

const (
	allBytes asked = iota
	noTexts        // bytes at a place only: XDP alone looks for texts, before all that netfilter knows
	noBytes
)

// Import makes a policy of files. It has the verdicts that the files' rules give packets that come in from outside:
//   - base chains are asked in the kernel's order, user chains where rules lead to them, and first-match rules come out;
//   - rules that differ in one part, as an address, become one rule, and those for IPv4 and IPv6 one for both;
//   - a rule that has no equal is left out so that those after it keep their meaning, and is reported. Tests of bytes have none where a
//     policy with them could not be had, as it would ask for them behind a state of connection tracking.
//
// Errors are InputError: a file that is not what it is said to be, or is cut off.
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

// askLess makes tests of bytes that the import does not take ones without equal. It reports whether any rule asks for bytes.
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
