// SPDX-License-Identifier: Apache-2.0

// Package saved reads saved rules of netfilter into one form: tables, chains, rules and sets, and the conditions under which
// a rule matches. It does not make a policy; package importer does.
//
// Read model.go first: it has the types. Then read cond.go, which has the condition of a rule. A condition consists of
// values of fields (values.go), tests of addresses (addrtest.go, addrs.go, set.go) and a limit (limit.go).
// condnormal.go and cover.go compare conditions. Report (report.go) collects remarks about rules that a policy cannot express.
//
// ReadIpset and ReadIptables read the output of ipset save, iptables-save and ip6tables-save. Files of ipset must be read
// before the rules that name their sets. A line with a rule is taken apart into tokens (iptablesoptions.go,
// iptablesextensions.go). iptablesrule.go turns tokens into a rule, with iptablesmatch.go and the files beside it for the
// matches, and iptablestarget.go for the targets.
//
// ReadNft reads the output of nft list ruleset, as text or as JSON. Text goes through nft itself in a namespace of its own
// (nfttext.go), which answers in JSON. nftrule.go reads the statements of a rule, nftmatch.go, nftselect.go, nftcompare.go
// and nftvalue.go its matches. nftlines.go and nftprint.go find or write the text of a rule for messages.
//
// An option, statement or expression that has no equivalent in a policy becomes an unknown part of its rule's condition. Only a
// file in another format and a truncated file are errors: InputError (input.go).
//
//	var rules saved.Ruleset
//	err := saved.ReadNft(ctx, &rules, &report, saved.Source{Name: "rules.nft", Data: text})
package saved
