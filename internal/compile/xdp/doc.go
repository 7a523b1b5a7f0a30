// SPDX-License-Identifier: Apache-2.0

// Package xdp compiles an ir.Program for XDP, to an Image of package internal/compile/image: the instructions of decide(), the constants that
// specialize the fixed C program, and the content of its maps. Read generate.go first: Generate there lists the components. The rules become straight
// code (straight.go) or tables (tables.go, tablecode.go), whichever costs less. Data that the instructions use are components of their own: addresses
// (address.go), conditions (condition.go, with payload, names and limits), guards, protections and actions. The package loads no program:
// kernel/datapath does.
//
//	x, err := xdp.Generate(program, xdp.Options{Slots: slots})
//	fmt.Print(x.Listing()) // what `floodwall compile` shows
package xdp
