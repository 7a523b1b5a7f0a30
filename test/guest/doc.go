// Package guest runs machines in QEMU: Debian's kernels, with network cards whose cables end in the test. The agent in the
// machine answers a JSON value a line. The tests of this package are those that need a machine: drivers of network cards, boot
// with systemd, and power cuts. Connections on these kernels are not tested here: test/traffic does it (kernels_test.go).
//
//	m := guest.Start(t, guest.Spec{Kernel: "6.12", Tools: []string{"ethtool"}})
//	out := m.Must("ethtool -i eth0")
package guest
