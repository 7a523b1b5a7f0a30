// Package bench measures what dropping packets costs: Floodwall, the limits that no program can pass, and the tools
// that do the same job. Everything happens in the namespaces of a lab; nothing outside of them is touched or left.
package bench

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -target bpfel -go-package bench peers ../../bpf/bench.c -- -O2 -g -mcpu=v3 -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
