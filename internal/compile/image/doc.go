// SPDX-License-Identifier: Apache-2.0

// Package image holds the compiled C part of the XDP program. It adds the parts that depend on the policy: the
// generated body of decide(), the constants, and the content of the maps. It does not touch the kernel; package
// datapath does.
//
//	im := &image.Image{Decide: rules, Constants: constants, Slots: counters} // as package xdp makes it
//	spec, err := im.Spec()                                                   // the C and the rules, ready to load
package image

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type protection -type condition -type guard -type flood -type action -target bpfel -go-package image floodwall ../../../bpf/floodwall.c -- -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -target bpfel -go-package image floodwallTC ../../../bpf/floodwall.c -- -DAT_TC -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// The objects are kept compressed. Of the Go code of bpf2go only the types and names are kept, because hook.go loads both objects.
//
//go:generate sh -c "gzip -9nf *_bpfel.o && rm floodwalltc_bpfel.go"
//go:generate sed -i -e "/^import (/,/^)/cimport \"structs\"" -e "/^)/q" floodwall_bpfel.go
