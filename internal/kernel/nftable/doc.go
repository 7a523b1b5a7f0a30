// SPDX-License-Identifier: Apache-2.0

// Package nftable reads nftables from the kernel by netlink, in the form in which the kernel executes it: tables, chains of expressions on registers,
// sets with their elements, and named objects. The proofs also read nftables with this package, so it shares no code with the compiler that writes
// tables. It does not parse the output of nft, which differs between versions of nft. An object that the package does not know becomes Unknown, or
// Unread, with an error that names it. The package changes nothing: `nft -f` writes.
//
// table.go has the types, read.go reads from the kernel, decode.go decodes expressions (include/uapi/linux/netfilter/nf_tables.h), and load.go loads
// a script into a separate network namespace.
//
//	tables, err := nftable.Load(ctx, script, []string{"eth0"})
package nftable
