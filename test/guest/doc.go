// Package guest runs machines in QEMU for tests: Debian's kernels, with network cards whose cables end in the test. The
// agent in the machine answers a JSON value a line.
package guest
