// SPDX-License-Identifier: Apache-2.0

package instance

import "testing"

// TestNames checks the names of instances. They must not change, because the state of earlier versions has these names.
func TestNames(t *testing.T) {
	t.Parallel()
	const standard = "/sys/fs/bpf/floodwall"
	for bpffs, want := range map[string][2]string{
		standard:            {"", "attacks"},
		standard + "/":      {"", "attacks"},
		"/sys/fs/bpf/a":     {"sys-fs-bpf-a", "attacks-sys-fs-bpf-a"},
		"/sys//fs/bpf/../x": {"sys-fs-x", "attacks-sys-fs-x"},
	} {
		if name, with := Name(bpffs, standard), With("attacks", bpffs, standard); name != want[0] || with != want[1] {
			t.Errorf("%s: %q, %q, want %q", bpffs, name, with, want)
		}
	}
}
