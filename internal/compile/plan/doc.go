// Package plan decides at which stage of the kernel each rule of a program runs, and which lists of rules become a
// lookup. An ir.Program and a target go in, and a Plan comes out. Code is generated in compile/xdp, nftables and
// iptables.
package plan
