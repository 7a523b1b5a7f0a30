// Package nftable reads a table of nftables from the kernel, as the kernel runs it: chains of expressions on registers, sets with their elements, and
// named objects. It is the reader of a proof, so it shares no code with the compiler that wrote the table, and not with nft's listing either:
// what it does not know, an expression or an attribute of one, is an error that names it.
//
// table.go has the types, decode.go reads expressions (include/uapi/linux/netfilter/nf_tables.h), read.go asks the kernel, and load.go loads a script in
// a network namespace of its own.
//
//	tables, err := nftable.Load(ctx, script, []string{"eth0"})
package nftable
