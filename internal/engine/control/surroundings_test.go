// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/testutil"
)

// said applies a policy, and returns the notes that contain part.
func (h *host) said(text string, o control.ApplyOptions, part string) (notes []string) {
	h.Helper()
	applied, err := h.try(text, o)
	if err != nil {
		h.Fatal(err)
	}
	for _, n := range applied.Notes {
		if strings.Contains(n, part) {
			notes = append(notes, n)
		}
	}
	return notes
}

// TestOtherUplink adds a device with a default route that the policy does not name.
func TestOtherUplink(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	testutil.Veth(t, "up0", "up1", "198.51.100.1/24")
	h.ip("link add link fw0 name mv0 type macvlan", "link set mv0 up", "addr add 203.0.113.1/24 dev mv0",
		"tuntap add tun0 mode tun", "link set tun0 up", "addr add 203.0.112.1/24 dev tun0",
		"route add default via 192.0.2.9", "route add default via 203.0.113.9 metric 5", "route add default dev tun0 metric 6")
	wants := func(when string, want bool, text string, o control.ApplyOptions) {
		t.Helper()
		if notes := h.said(text, o, "there is a default route by up0, too"); (len(notes) == 1) != want {
			t.Errorf("%s: apply says %q, which should be there: %t", when, notes, want)
		}
	}
	wants("one uplink, a macvlan and a tunnel", false, "default: drop", control.ApplyOptions{})
	h.ip("route add default via 198.51.100.9 metric 7 table 12")
	wants("another table", true, "default: drop", control.ApplyOptions{})
	h.ip("route del default table 12", "route add default metric 9 nexthop via 198.51.100.9 nexthop via 192.0.2.9")
	wants("several next hops", true, "default: drop", control.ApplyOptions{})
	wants("both devices", false, "default: drop", control.ApplyOptions{Devices: []string{"fw0", "up0"}})
	wants("no default to meet", false, "default: pass", control.ApplyOptions{})
	wants("no replies", false, "default: drop\nreplies: drop", control.ApplyOptions{})
	wants("conntrack sees both", false, "default: drop", control.ApplyOptions{Target: plan.TargetNftables})
}

// TestDecryptedNoted adds IPsec policies: for a tunnel whose packets arrive a second time at the same device, and for a VTI, which has its own
// device.
func TestDecryptedNoted(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	tunnel := " tmpl src 192.0.2.9 dst 192.0.2.1 proto esp mode tunnel"
	h.ip("xfrm policy add src 10.9.0.0/16 dst 10.1.0.0/16 dir in mark 7"+tunnel, "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out"+tunnel)
	if notes := h.said("default: drop", control.ApplyOptions{}, "IPsec"); notes != nil {
		t.Errorf("without a policy for what comes in by the device: %q", notes)
	}
	h.ip("xfrm policy add src 10.2.0.0/16 dst 10.1.0.0/16 dir in"+tunnel, "xfrm policy add src 10.2.0.0/16 dst 10.1.0.0/16 dir fwd"+tunnel)
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables} {
		if notes := h.said("default: drop", control.ApplyOptions{Target: target}, "`{from: [10.2.0.0/16], then: pass}`"); len(notes) != 1 {
			t.Errorf("%s: %q", target, notes)
		}
	}
	if notes := h.said("default: pass", control.ApplyOptions{}, "IPsec"); notes != nil {
		t.Errorf("default: pass: %q", notes)
	}
}

// TestLoopbackNoted applies a policy for the loopback device.
func TestLoopbackNoted(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	if notes := h.said("default: pass", control.ApplyOptions{Devices: []string{"lo", "fw0"}, Target: plan.TargetNftables}, "device lo has packets of this host"); len(notes) != 1 {
		t.Errorf("apply says %q", notes)
	}
}

// TestSeenLater attaches another tool's egress program: after Floodwall's program, which the next apply moves to the end, and as a filter. apply and
// status must name the other program while it runs after Floodwall's.
func TestSeenLater(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	if features.TCX() != nil {
		return // Floodwall's program is then a filter, and runs first
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "plugin", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	fw0, err := netlink.LinkByName("fw0")
	if err != nil {
		t.Fatal(err)
	}
	attach := func() (detach func()) {
		l, err := link.AttachTCX(link.TCXOptions{Interface: fw0.Attrs().Index, Program: prog, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			t.Fatal(err)
		}
		return func() { l.Close() }
	}
	wants := func(when string, target plan.Target, want string) {
		t.Helper()
		notes := h.said("default: drop", control.ApplyOptions{Target: target}, "plugin at tc of device fw0 sees what leaves after ")
		if (len(notes) == 1) != (want != "") || want != "" && !strings.Contains(notes[0], want) {
			t.Errorf("%s, %s: apply says %q, want %q", when, target, notes, want)
		}
		s, err := h.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Warnings, "\n"); strings.Contains(got, "plugin at tc") != (want != "") {
			t.Errorf("%s, %s: status warns %q, want %q", when, target, got, want)
		}
	}
	wants("no program", plan.TargetXDP, "")
	detach := attach()
	h.wantWarning("plugin at tc of device fw0 sees leaving packets after Floodwall does", true)
	wants("applied again, before ours", plan.TargetXDP, "")
	wants("beside conntrack", plan.TargetNftables, "after conntrack has")
	detach()
	wants("gone", plan.TargetNftables, "")
	wants("gone", plan.TargetXDP, "")
	if err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: fw0.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}); err != nil {
		t.Fatal(err)
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: fw0.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:          prog.FD(), Name: "plugin", DirectAction: true,
	}
	if err := netlink.FilterAdd(filter); err != nil {
		t.Fatal(err)
	}
	wants("a filter", plan.TargetXDP, "a rule can let the answers pass")
	if err := netlink.FilterDel(filter); err != nil {
		t.Error(err)
	}
}
