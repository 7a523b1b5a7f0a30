// Package suggesttest has traffic for tests of what finds rules against attacks: real attacks, or generated ones where the captures of real
// ones are not, and a server's usual packets. It judges no rule.
//
//	baseline, judged := suggesttest.Recorded(t)
//	for _, a := range suggesttest.Attacks(t, root, random) {
//		try(a, baseline, judged)
//	}
package suggesttest
