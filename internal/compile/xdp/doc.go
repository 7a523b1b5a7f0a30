// Package xdp compiles a program for XDP. The rules of an ir.Program go in, and the Image of package internal/compile/image comes out: the
// instructions of decide(), the constants by which the fixed C program is specialized, and what fills its maps. Read generate.go
// first, whose Generate lists the components. The rules become straight code (straight.go) or tables (tables.go, tablecode.go),
// whichever costs less. What instructions cannot say is a component of its own: addresses (address.go), conditions
// (condition.go, with payload, names and limits), guards, protections and actions. It loads nothing: kernel/datapath does.
//
//	x, err := xdp.Generate(program, xdp.Options{Slots: slots})
//	fmt.Print(x.Listing()) // what `floodwall compile` shows
package xdp
