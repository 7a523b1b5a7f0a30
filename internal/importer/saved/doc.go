// Package saved holds netfilter rules in one form for iptables and nft: tables, chains, rules and sets, and the
// conditions under which a rule matches. The readers of package iptables and package nft fill a Ruleset. Package
// importer makes a policy of it.
//
// Read model.go first: it has the types. Then read cond.go, which has the condition of a rule. A condition consists of
// values of fields (values.go), tests of addresses (addrtest.go, addrs.go, set.go) and a limit (limit.go).
// condnormal.go and cover.go compare conditions. Report (report.go) gathers remarks about what a policy cannot say.
// InputError (input.go) is the error for a file that cannot be read.
package saved
