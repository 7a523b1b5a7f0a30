// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/testutil"
)

// besideHost is a host with a closed port to which packets can be sent.
type besideHost struct {
	*host
	closed *net.UDPConn
}

// wantMode checks the mode of the device, and that a packet to the closed port does not arrive.
func (h *besideHost) wantMode(when, want string) {
	h.Helper()
	s, err := h.Status(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	if got := s.Devices[0].Mode; got != want {
		h.Errorf("%s: mode %s, want %s", when, got, want)
	}
	if err := testutil.Send("fw1", "udp 192.0.2.7:1 > 192.0.2.1:9", 3); err != nil {
		h.Fatal(err)
	}
	if testutil.Arrives(h, h.closed, 50*time.Millisecond) {
		h.Errorf("%s: a packet reached the closed port", when)
	}
}

// wantRepair checks that a repair reports want, or that it does nothing if want is empty.
func (h *besideHost) wantRepair(when, want string) {
	h.Helper()
	r, err := h.Repair(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	if r.Any() != (want != "") || !strings.Contains(r.String(), want) {
		h.Errorf("%s: the repair says %q, want %q", when, r, want)
	}
}

func newBesideHost(t *testing.T) *besideHost {
	h := newHost(t)
	if h == nil || features.TCX() != nil {
		return nil
	}
	closed, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed.Close() })
	return &besideHost{h, closed}
}

// TestBesideXDP lets the XDP program of another tool come and go. With mode auto the device is at tc while the other is there, and in native mode
// otherwise, by a repair and by an apply. A mode that was asked for stays.
func TestBesideXDP(t *testing.T) {
	h := newBesideHost(t)
	if h == nil {
		return
	}
	occupied := func() (leave func()) {
		detach, err := testutil.AttachForeign("fw0")
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := detach(); err != nil {
				t.Error(err)
			}
		}
	}
	const because = "fw0 runs in tc mode: another XDP program is attached"
	apply := func(o control.ApplyOptions, want string) {
		t.Helper()
		o.Target = plan.TargetXDP
		notes := h.said("default: drop", o, because)
		if (len(notes) == 1) != (want != "") {
			t.Errorf("apply %+v says %q", o, notes)
		}
	}
	leave := occupied()
	apply(control.ApplyOptions{}, because)
	h.wantMode("beside another", "tc")
	h.wantRepair("beside another", "")
	apply(control.ApplyOptions{}, because)
	h.wantMode("applied again beside it", "tc")
	leave()
	h.wantRepair("it has left", "device fw0 runs in native mode, no more in tc mode")
	h.wantMode("it has left", "native")
	h.wantRepair("it has left", "")

	if err := h.Unload(t.Context()); err != nil {
		t.Fatal(err)
	}
	leave = occupied()
	apply(control.ApplyOptions{}, because)
	leave()
	apply(control.ApplyOptions{Confirm: time.Minute}, "")
	h.wantMode("on trial, whose end does not change the mode", "tc")
	if _, err := h.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantMode("rolled back", "tc")
	apply(control.ApplyOptions{}, "")
	h.wantMode("after the trial", "native")

	apply(control.ApplyOptions{Mode: datapath.TC}, "")
	h.wantMode("tc asked for", "tc")
	h.wantRepair("tc asked for", "")
	apply(control.ApplyOptions{Kept: datapath.TC}, "")
	h.wantMode("tc kept", "tc")
	apply(control.ApplyOptions{Mode: datapath.Auto, Kept: datapath.TC}, "")
	h.wantMode("auto asked for", "native")
	apply(control.ApplyOptions{Mode: datapath.Generic}, "")
	apply(control.ApplyOptions{Mode: datapath.Auto}, "")
	h.wantMode("auto after generic", "native")
}

// TestBesideTC attaches a program of another tool before Floodwall's at the ingress of tc. It accepts all packets, so the closed port is open, and
// status warns. A repair, and an apply, end that.
func TestBesideTC(t *testing.T) {
	h := newBesideHost(t)
	if h == nil {
		return
	}
	overtake := func() {
		const accept = 0 // TCX_PASS of include/uapi/linux/bpf.h
		detach, err := testutil.AttachAtTC("fw0", ebpf.AttachTCXIngress, link.Head(), asm.Instructions{asm.Mov.Imm(asm.R0, accept), asm.Return()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { detach() })
	}
	const text = "plugin at tc of device fw0 sees entering packets before Floodwall does"
	apply := func(o control.ApplyOptions) {
		o.Target, o.Mode = plan.TargetXDP, datapath.TC
		h.said("default: drop", o, "")
	}
	apply(control.ApplyOptions{})
	h.wantMode("alone", "tc")
	h.wantWarning(text, false)
	overtake()
	h.wantWarning(text, true)
	h.wantRepair("overtaken", text)
	h.wantWarning(text, false)
	h.wantMode("repaired", "tc")
	overtake()
	apply(control.ApplyOptions{})
	h.wantWarning(text, false)
	h.wantMode("applied again", "tc")
	apply(control.ApplyOptions{Confirm: time.Minute})
	overtake()
	h.wantRepair("overtaken on trial", text)
	h.wantMode("repaired on trial", "tc")
	if _, err := h.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantMode("confirmed", "tc")
}

// TestAskAtTC asks a policy in mode tc. The attached program itself must run.
func TestAskAtTC(t *testing.T) {
	h := newBesideHost(t)
	if h == nil {
		return
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	h.mode = datapath.TC
	h.applyTo(plan.TargetXDP, askPolicy)
	dev, err := net.InterfaceByName("fw0")
	if err != nil {
		t.Fatal(err)
	}
	on, err := link.QueryPrograms(link.QueryOptions{Target: dev.Index, Attach: ebpf.AttachTCXIngress})
	if err != nil || len(on.Programs) != 1 {
		t.Fatalf("programs at tc: %+v (error %v)", on, err)
	}
	prog, err := ebpf.NewProgramFromID(on.Programs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	runs := func() uint64 {
		s, err := prog.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.RunCount
	}
	h.run("ip", "link", "set", "fw1", "down") // so that it runs for questions alone
	before := runs()
	h.wantAnswer("at tc", "udp 198.51.100.7:1234 > 192.0.2.1:99", "drop default")
	h.wantAnswer("at tc", "tcp 203.0.113.9:1234 > 192.0.2.1:113 S", "pass office")
	if n := runs() - before; n != 2 {
		t.Errorf("the attached program ran %d times for two questions", n)
	}
}
