// SPDX-License-Identifier: Apache-2.0

// Package importer converts rules that other tools have loaded (the output of iptables-save, ip6tables-save, ipset save, nft
// list ruleset) to a policy with the same verdicts for packets that arrive from outside. It reports each line that has no
// equivalent in the policy, and the effect that is lost. It changes nothing on this host.
//
// Read import.go first: Import calls all steps in their order. Package saved parses files into a saved.Ruleset. follow.go,
// traversal.go and flatten.go follow packets through its chains, and produce flat rules of which the first match decides. fold.go
// and merge.go join flat rules. render.go, write.go and writeset.go write the policy. account.go and rest.go find the rules that
// the policy does not have. compare.go compares the policy with the saved rules, which trace.go evaluates as the kernel does.
//
//	r, err := importer.Import(ctx, []importer.Source{{Name: "rules.v4", Data: text}}, importer.Options{Format: importer.Iptables})
//	fmt.Print(r.Policy, r.Lost)
package importer
