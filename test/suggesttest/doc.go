// SPDX-License-Identifier: Apache-2.0

// Package suggesttest has traffic for tests of the search for rules against attacks: real attacks, or generated ones if the captures are missing, and
// a server's usual packets. It judges no rule.
//
//	baseline, judged := suggesttest.Recorded(t)
//	for _, a := range suggesttest.Attacks(t, root, random) {
//		try(a, baseline, judged)
//	}
package suggesttest
