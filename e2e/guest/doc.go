// SPDX-License-Identifier: Apache-2.0

// Package guest runs virtual machines in QEMU, with Debian's kernels. The test sends and receives the frames of their network cards. An agent in the
// machine executes the test's requests; requests and responses are JSON, one value a line. The tests of this package need a whole machine: they test
// drivers of network cards, the boot with systemd, and power cuts. e2e/traffic tests connections on these kernels (kernels_test.go).
//
//	m := guest.Start(t, guest.Spec{Kernel: "6.12", Tools: []string{"ethtool"}})
//	out := m.Must("ethtool -i eth0")
package guest
