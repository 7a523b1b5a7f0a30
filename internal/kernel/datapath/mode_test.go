// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

func linkID(t *testing.T, l link.Link) link.ID {
	t.Helper()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// reachable gives fw0 the address to which the packets of Flood are sent. It returns a socket at their port that one of them has reached.
func reachable(t *testing.T) *net.UDPConn {
	t.Helper()
	if err := netlink.LinkSetHardwareAddr(device(t, "fw0"), packet.Destination()); err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	stop := testutil.Flood(t, "fw1", "udp 192.0.2.7:1 > 192.0.2.1:9", 10*time.Millisecond)
	arrives := testutil.Arrives(t, socket, time.Minute)
	stop()
	if !arrives {
		t.Fatal("without a policy no packet arrives")
	}
	return socket
}

// TestChangeMode changes the mode of a device whose policy drops all packets, while packets arrive, also during a trial. No packet may pass. The
// trial must expire, be confirmed and be rolled back in the same way as without a change of mode.
func TestChangeMode(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	s := locked(t)
	socket := reachable(t)
	install(t, s, "fw0")
	defer unloadAll(t, s)
	for testutil.Arrives(t, socket, 0) { // what came before
	}
	flood := testutil.Flood(t, "fw1", "udp 192.0.2.7:1 > 192.0.2.1:9", 0)
	program := inTurn(t, always(70, 1))
	apply := func(mode datapath.Mode, ends time.Time) {
		t.Helper()
		to := []datapath.Attachment{{Device: "fw0", Mode: mode, Spare: true}}
		got, err := s.Install(program(), []byte("manifest"), to, ends)
		if err != nil || mode != datapath.Auto && mode != datapath.Keep && got[0].Mode != mode {
			t.Fatalf("to %s: %v, %v", mode, got, err)
		}
	}
	want := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		apply(datapath.Generic, time.Time{})
		apply(datapath.Native, time.Time{})
		apply(datapath.TC, time.Time{})
	}
	trial := func() time.Time { return time.Now().Add(time.Minute) }
	apply(datapath.Native, trial())
	want(s.Rollback())
	apply(datapath.Native, trial())
	want(s.Confirm())
	apply(datapath.TC, trial())
	want(s.Confirm())
	apply(datapath.Native, time.Time{})
	want(s.Rollback()) // to tc
	apply(datapath.Native, time.Time{})
	apply(datapath.Generic, trial())
	want(s.Rollback())
	apply(datapath.Native, time.Time{})
	apply(datapath.Generic, trial())
	want(s.Confirm())
	want(s.Rollback()) // to a generation of the other mode
	apply(datapath.Native, time.Time{})
	running, err := s.Running()
	if err != nil {
		t.Fatal(err)
	}
	number := running[0].Number
	running[0].Close()
	if changed, err := s.LeaveNative([]string{"fw0"}, number); err != nil || len(changed) != 1 || changed[0].Mode != datapath.TC {
		t.Errorf("out of native mode: %v, %v", changed, err)
	}
	if changed, refused, err := s.TakeNative([]string{"fw0"}, number); err != nil || refused != nil || len(changed) != 1 || changed[0].Mode != datapath.Native {
		t.Errorf("back to native mode: %v, %v", changed, err)
	}
	if _, err := s.LeaveNative([]string{"fw0"}, number); err != nil {
		t.Error(err)
	}
	detach, err := testutil.AttachForeign("fw0")
	want(err)
	if changed, refused, err := s.TakeNative([]string{"fw0"}, number); err != nil || len(changed) != 0 || len(refused) != 1 || refused[0].Device != "fw0" {
		t.Errorf("to native mode beside another program: %v, %v, %v", changed, refused, err)
	}
	want(detach())
	// What a command leaves that dies between the two pins of a change.
	l, err := link.LoadPinnedLink(filepath.Join(stateDir, "links", "fw0"), nil)
	want(err)
	left := filepath.Join(stateDir, "links", fmt.Sprintf("%%if%d-new", device(t, "fw0").Attrs().Index))
	clone, err := link.NewFromID(linkID(t, l))
	want(err)
	want(clone.Pin(left))
	want(clone.Close())
	want(l.Close())
	apply(datapath.Keep, time.Time{})
	if _, err := os.Stat(left); err == nil {
		t.Errorf("%s is still there", left)
	}
	apply(datapath.Auto, trial())
	want(s.Rollback())
	apply(datapath.Auto, trial())
	want(s.Confirm())
	flood()
	if testutil.Arrives(t, socket, 100*time.Millisecond) {
		t.Error("a packet has passed")
	}
}

// TestChangeModeFails has a device that goes while it and another one change from tc to native mode, and a generation whose program for tc has lost its pin.
// The change of the other device must be complete, and no program of the change may stay.
func TestChangeModeFails(t *testing.T) {
	if !testutil.Inside(t) || features.TCX() != nil {
		return
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	testutil.Veth(t, "fw2", "fw3")
	s := locked(t)
	to := []datapath.Attachment{{Device: "fw0", Mode: datapath.TC, Spare: true}, {Device: "fw2", Mode: datapath.TC, Spare: true}}
	got, err := s.Install(loadInside(t, always(70, 1)), []byte("manifest"), to, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer unloadAll(t, s)
	number := got[0].Generation
	pins := func() []string {
		found, err := filepath.Glob(filepath.Join(stateDir, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(found, func(p string) bool { return strings.Contains(p, "fw2") })
	}
	before := pins()
	gone := time.AfterFunc(50*time.Millisecond, func() {
		if err := netlink.LinkDel(device(t, "fw2")); err != nil {
			t.Error(err)
		}
	})
	defer gone.Stop()
	changed, refused, err := s.TakeNative([]string{"fw2", "fw0"}, number)
	if err != nil || refused != nil || len(changed) != 2 {
		t.Errorf("a device goes meanwhile: %v, %v, %v", changed, refused, err)
	}
	if after := pins(); !slices.Equal(after, before) {
		t.Errorf("pins after the change:\n%s\nbefore:\n%s", after, before)
	}
	if _, err := s.LeaveNative([]string{"fw0"}, number); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(stateDir, fmt.Sprint("generation-", number), "program_tc")); err != nil {
		t.Fatal(err)
	}
	if changed, refused, err := s.TakeNative([]string{"fw0"}, number); err != nil || refused != nil || len(changed) != 1 || changed[0].Mode != datapath.Native {
		t.Errorf("the program for tc has no pin: %v, %v, %v", changed, refused, err)
	}
}
