// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/testutil"
)

// otherXDP is an XDP program of another tool. It passes all packets and counts them.
type otherXDP struct {
	*testing.T
	count  *ebpf.Map
	detach func() error
}

// newOtherXDP attaches the program to fw0, by a link or by netlink. Of netlink the kernel tells those who watch devices, of a link it does not.
func newOtherXDP(t *testing.T, byLink bool) *otherXDP {
	t.Helper()
	o := &otherXDP{T: t}
	var err error
	if o.count, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.count.Close() })
	const pass = 2 // XDP_PASS of include/uapi/linux/bpf.h
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "other", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapValue(asm.R1, o.count.FD(), 0),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, pass),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	fw0, err := netlink.LinkByName("fw0")
	if err != nil {
		t.Fatal(err)
	}
	if byLink {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: fw0.Attrs().Index})
		if err != nil {
			t.Fatal(err)
		}
		o.detach = l.Close
		return o
	}
	if err := netlink.LinkSetXdpFd(fw0, prog.FD()); err != nil {
		t.Fatal(err)
	}
	o.detach = func() error { return netlink.LinkSetXdpFd(fw0, -1) }
	return o
}

// leave detaches the program.
func (o *otherXDP) leave() {
	o.Helper()
	if err := o.detach(); err != nil {
		o.Error(err)
	}
}

// wantCounting checks that the program still sees packets.
func (o *otherXDP) wantCounting(when string) {
	o.Helper()
	read := func() (n uint64) {
		if err := o.count.Lookup(uint32(0), &n); err != nil {
			o.Error(err)
		}
		return n
	}
	before := read()
	waitFor(o.T, when+": packets at the other program", func() bool { return read() > before })
}

// TestBesideXDP lets XDP programs of other tools come and go on the device of a policy, while the daemon runs, after it was killed, and beside a flood
// at a closed port. The policy must run at tc while the other program is there, and in native mode otherwise. No packet may reach the port, and the
// other program must work as before.
func TestBesideXDP(t *testing.T) {
	if !inside(t) || features.TCX() != nil {
		return
	}
	closed, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	device := func(mode string) {
		t.Helper()
		waitFor(t, "mode "+mode, func() bool {
			return strings.Contains(strings.Join(strings.Fields(mustFloodwall(t, "status")), " "), "device stage mode fw0 "+map[string]string{"tc": "tc", "native": "xdp"}[mode]+" "+mode+" ")
		})
	}
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, "devices: [fw0]\nxdp: always\nrules: [{proto: udp, port: 9, then: drop}]\n")
	for _, byLink := range []bool{true, false} {
		when := fmt.Sprintf("attached by a link: %t", byLink)
		other := newOtherXDP(t, byLink)
		if out := mustFloodwall(t, "apply", policy); !strings.Contains(out, "on fw0 (xdp, tc)") {
			t.Errorf("%s: apply says %q", when, out)
		}
		stop := testutil.Flood(t, "fw1", "udp 192.0.2.7:1 > 192.0.2.1:9", 100*time.Microsecond)
		daemon := startDaemon(t)
		device("tc")
		other.wantCounting(when)
		other.leave()
		other = newOtherXDP(t, byLink) // it has only restarted
		other.wantCounting(when + ", restarted")
		device("tc")
		if byLink {
			daemon.kill()
			other.leave()
			daemon = startDaemon(t)
		} else {
			other.leave()
		}
		testutil.Eventually(time.Minute, func() bool { return strings.Contains(mustFloodwall(t, "status"), " native") }) // the other may only restart
		device("native")
		if said := daemon.said.String(); !strings.Contains(said, "device fw0 runs in native mode, no more in tc mode") {
			t.Errorf("%s: the daemon says %q", when, said)
		}
		mustFloodwall(t, "apply", policy, "--mode", "tc")
		other = newOtherXDP(t, byLink)
		other.wantCounting(when + ", come later")
		other.leave()
		daemon.kill()
		stop()
		if testutil.Arrives(t, closed, 100*time.Millisecond) {
			t.Errorf("%s: a packet reached the closed port", when)
		}
		mustFloodwall(t, "unload")
	}
}
