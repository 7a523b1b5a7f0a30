// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// atOrder attaches a program of another tool to a hook of fw0 at an anchor, until the end of the test. The program leaves packets to the next one.
func atOrder(t *testing.T, hook ebpf.AttachType, anchor link.Anchor) {
	t.Helper()
	detach, err := testutil.AttachAtTC("fw0", hook, anchor, testutil.NextAtTC())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { detach() })
}

// misplaced returns what has taken the place of ours on the devices that run.
func misplaced(t *testing.T, s *datapath.State) (list []datapath.Misplaced) {
	t.Helper()
	running, err := s.Running()
	if err != nil {
		t.Fatal(err)
	}
	defer datapath.CloseAll(running)
	for _, d := range running[0].Devices {
		list = append(list, d.Misplaced()...)
	}
	return list
}

// TestOrder attaches programs of another tool before ours, where packets enter, and after ours, where packets leave, in both modes and on trial. They
// must be reported, and Reorder must give ours their place. No packet may pass meanwhile.
func TestOrder(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	if !datapath.HasTCX() {
		return // without links of TCX nobody can attach before ours
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	s := locked(t)
	defer unloadAll(t, s)
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	program := inTurn(t, guarding(70))
	apply := func(mode datapath.Mode, ends time.Time) {
		t.Helper()
		if _, err := s.Install(program(), []byte("manifest"), []datapath.Attachment{{Device: "fw0", Mode: mode}}, ends); err != nil {
			t.Fatal(err)
		}
	}
	apply(datapath.TC, time.Time{})
	flood := testutil.Flood(t, "fw1", "udp 192.0.2.7:1 > 192.0.2.1:9", 0)
	for _, mode := range []datapath.Mode{datapath.TC, datapath.Native} {
		for _, ends := range []time.Time{{}, time.Now().Add(time.Minute)} {
			apply(mode, ends)
			if list := misplaced(t, s); list != nil {
				t.Errorf("%s: misplaced at first: %v", mode, list)
			}
			atOrder(t, ebpf.AttachTCXIngress, link.Head())
			atOrder(t, ebpf.AttachTCXEgress, link.Tail())
			want := func(what string, got []datapath.Misplaced, err error) {
				t.Helper()
				place := func(m datapath.Misplaced) bool {
					return m.Device == "fw0" && slices.Equal(m.Others, []string{"plugin"})
				}
				if err != nil || len(got) != 2 || !place(got[0]) || !place(got[1]) || got[0].Leaving == got[1].Leaving {
					t.Errorf("%s: %s: %v, %v", mode, what, got, err)
				}
			}
			want("misplaced", misplaced(t, s), nil)
			list, err := s.Reorder(func(datapath.Misplaced) bool { return true })
			want("reordered", list, err)
			if list := misplaced(t, s); list != nil {
				t.Errorf("%s: misplaced afterwards: %v", mode, list)
			}
			if !ends.IsZero() {
				if err := s.Rollback(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	flood()
	if testutil.Arrives(t, socket, 100*time.Millisecond) {
		t.Error("a packet has passed")
	}
}
