// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestSendsBack tests real devices. It tests a veth again after each change at the other end that affects whether that end accepts the frames that
// XDP sends back.
func TestSendsBack(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "out0")
	pinPass(t, "/sys/fs/bpf/pass")
	for _, c := range []struct {
		name, set string // commands of ip and ethtool, by line
		device    string
		sends     bool
	}{
		{"a plain veth", "", "fw0", false},
		{"a veth whose other end has GRO, which is not woken", "ethtool -K out0 gro on", "fw0", false},
		{"and has it no more", "ethtool -K out0 gro off", "fw0", false},
		{"a veth whose other end has a program", "ip link set out0 xdpdrv pinned /sys/fs/bpf/pass", "fw0", true},
		{"and has it no more", "ip link set out0 xdpdrv off", "fw0", false},
		{"a veth whose other end is down", "ethtool -K out0 gro on\nip link set out0 down", "fw0", false},
		{"a tap device that nobody reads", "ip tuntap add tap0 mode tap\nip link set tap0 up", "tap0", false},
	} {
		for line := range strings.Lines(c.set) {
			f := strings.Fields(line)
			if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %s: %v: %s", c.name, line, err, out)
			}
		}
		dev, err := netlink.LinkByName(c.device)
		if err != nil {
			t.Fatal(err)
		}
		err = datapath.SendsBack(dev)
		t.Logf("%s: %v", c.name, err)
		if (err == nil) != c.sends {
			t.Errorf("%s: it sends back: %v; want %v (%v)", c.name, err == nil, c.sends, err)
		}
	}
}

// pinPass pins an XDP program that passes all packets.
func pinPass(t *testing.T, path string) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err == nil {
		err = prog.Pin(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	prog.Close()
}
