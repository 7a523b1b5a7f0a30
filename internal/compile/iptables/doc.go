// SPDX-License-Identifier: Apache-2.0

// Package iptables writes a plan for iptables, ip6tables and ipset. A plan.Plan goes in, and a Ruleset comes out: input for the
// restore commands of the three tools, and the hooks by which packets reach Floodwall's chains. Read generate.go first, then chain.go,
// which adds tables, chains and lines. cond.go has the terms in which a rule's condition is written; rule.go, header.go, plain.go
// and field.go make it from the rule. The package runs no command: kernel/netfilter does.
//
//	pl, err := plan.Hoist(program, plan.TargetIptables)
//	rules, err := iptables.Generate(pl, iptables.Options{Devices: devices})
package iptables
