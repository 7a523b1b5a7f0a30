// SPDX-License-Identifier: Apache-2.0

// Package nftables writes a plan as a table of nftables. A plan.Plan goes in, and a Ruleset comes out: a script for
// `nft -f`, and the names that its chains, sets and counters have. Read generate.go first, whose Generate lists the
// chains. chain.go writes chains. match.go, line.go, field.go and value.go write the tests of a line. condition.go and
// limit.go write the last tests of a line: payload and limits. The package runs no command: kernel/netfilter does.
//
//	pl, err := plan.Hoist(program, plan.TargetNftables)
//	table, err := nftables.Generate(pl, nftables.Options{Devices: devices})
package nftables
