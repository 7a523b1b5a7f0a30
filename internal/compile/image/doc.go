// Package image holds the XDP program's C part, compiled, and puts the part that a policy decides into it: the generated
// body of decide(), the constants, and the content of the maps. It touches no kernel; package datapath does.
//
//	im := &image.Image{Decide: rules, Constants: constants, Slots: counters} // as package xdp makes it
//	spec, err := im.Spec()                                                   // the C and the rules, ready to load
package image

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type protection -type condition -type guard -type flood -type action -target bpfel -go-package image floodwall ../../../bpf/floodwall.c -- -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
