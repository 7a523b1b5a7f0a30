// SPDX-License-Identifier: Apache-2.0

// Package lab builds small networks inside this machine, sends traffic through them, and measures the packets that arrive. It knows no firewall:
// cmd/floodwall-lab adds one.
//
// Hosts are network namespaces without a name, held by file descriptors. They vanish with the process that made them, however that ends. Nothing in
// this package touches a device, rule or address of the caller's namespace. Everything here needs root.
//
//	err := lab.Run(ctx, func(ctx context.Context, l *lab.Lab) error {
//		source, err := l.NewSource(device, lab.SourceOptions{Flows: flows})
//		m, err = lab.Measure(ctx, source, receiver, time.Second)
//		return err
//	})
package lab

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type recipe -type address -type field16 -type counters -target bpfel -go-package lab lab ../../bpf/lab.c -- -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type holder -target bpfel -go-package lab stall ../../bpf/stall.c -- -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
