// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// filters returns the filters of tc on fw0 that see packets which enter, and reports whether the device has the qdisc clsact.
func filters(t *testing.T) (list []netlink.Filter, clsact bool) {
	t.Helper()
	fw0 := device(t, "fw0")
	qdiscs, err := netlink.QdiscList(fw0)
	if err != nil {
		t.Fatal(err)
	}
	clsact = slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "clsact" })
	if list, err = netlink.FilterList(fw0, netlink.HANDLE_MIN_INGRESS); err != nil && clsact {
		t.Fatal(err)
	}
	return list, clsact
}

// TestClassifier runs the program at tc as on a kernel without TCX, by a filter of clsact. A policy drops all packets, while packets arrive. Modes
// change, also on trial, the device goes and comes, and a command leaves a filter that it has not pinned. No packet may pass, and no filter may stay.
func TestClassifier(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	datapath.ForgetTCX()
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	s := locked(t)
	socket := reachable(t)
	apply := func(mode datapath.Mode, ends time.Time) int {
		t.Helper()
		to := []datapath.Attachment{{Device: "fw0", Mode: mode, Spare: true}}
		got, err := s.Install(loadInside(t, always(70, 1)), []byte("manifest"), to, ends)
		if err != nil || mode != datapath.Auto && mode != datapath.Keep && got[0].Mode != mode {
			t.Fatalf("to %q: %v, %v", mode, got, err)
		}
		return got[0].Generation
	}
	want := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	trial := func() time.Time { return time.Now().Add(time.Minute) }
	apply(datapath.TC, time.Time{})
	for testutil.Arrives(t, socket, 0) { // what came before
	}
	flood := testutil.Flood(t, "fw1", "udp 192.0.2.7:1 > 192.0.2.1:9", 0)
	apply(datapath.Native, time.Time{})
	apply(datapath.TC, time.Time{})
	apply(datapath.Keep, time.Time{})
	if list, _ := filters(t); len(list) != 1 {
		t.Errorf("filters: %v", list)
	}
	apply(datapath.Generic, time.Time{})
	apply(datapath.TC, time.Time{})
	apply(datapath.TC, trial())
	want(s.Confirm())
	apply(datapath.TC, trial())
	want(s.Rollback())
	apply(datapath.Native, trial())
	want(s.Rollback())
	number := apply(datapath.Auto, time.Time{})
	if changed, err := s.LeaveNative([]string{"fw0"}, number); err != nil || len(changed) != 1 || changed[0].Mode != datapath.TC {
		t.Errorf("out of native mode, before a flood: %v, %v", changed, err)
	}
	if changed, refused, err := s.TakeNative([]string{"fw0"}, number); err != nil || refused != nil || len(changed) != 1 || changed[0].Mode != datapath.Native {
		t.Errorf("to native mode: %v, %v, %v", changed, refused, err)
	}
	if changed, err := s.LeaveNative([]string{"fw0"}, number); err != nil || len(changed) != 1 || changed[0].Mode != datapath.TC {
		t.Errorf("out of native mode: %v, %v", changed, err)
	}
	if lacks, err := s.Lacking([]string{"fw0"}, number); err != nil || lacks != nil {
		t.Errorf("lacks %v, %v", lacks, err)
	}
	list, _ := filters(t)
	want(netlink.FilterDel(list[0]))
	if lacks, err := s.Lacking([]string{"fw0"}, number); err != nil || len(lacks) != 1 || lacks[0].Of != "" {
		t.Errorf("filter deleted: lacks %v, %v", lacks, err)
	}
	if _, err := s.Reattach([]datapath.Attachment{{Device: "fw0", Mode: datapath.TC}}, number); err != nil {
		t.Error(err)
	}
	time.Sleep(50 * time.Millisecond)
	for testutil.Arrives(t, socket, 50*time.Millisecond) { // what came while the filter was deleted
	}
	time.Sleep(50 * time.Millisecond)
	flood()
	if testutil.Arrives(t, socket, 100*time.Millisecond) {
		t.Error("a packet has passed")
	}
	unloadAll(t, s)
	if list, clsact := filters(t); list != nil || clsact {
		t.Errorf("left: %v, clsact %t", list, clsact)
	}
}
