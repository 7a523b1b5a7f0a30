// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestEgressRemoved lets another tool remove the egress program, and on a kernel without TCX also the program's qdisc. Lacking must name the missing
// part, and Reattach must restore it.
func TestEgressRemoved(t *testing.T) { byEachHook(t, egressRemoved) }

func egressRemoved(t *testing.T) {
	s := cable(t)
	number := put(t, s, "old", 0, in("fw0"))[0].Generation
	lacks := func(when string, want ...datapath.Lack) {
		t.Helper()
		got, err := s.Lacking([]string{"fw0"}, number)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s, it lacks %v, %v", when, got, err)
		}
	}
	lacks("installed")
	for _, way := range removals() {
		way.remove(t)
		if got := decidesLeaving(t, device(t, "fw0")); got != "" {
			t.Fatalf("%s: %q decides what leaves", way.name, got)
		}
		lacks(way.name, datapath.Lack{Device: "fw0", Of: "what device fw0 sends"})
		if _, err := s.Reattach(on("fw0"), number); err != nil {
			t.Fatalf("%s: %v", way.name, err)
		}
		leaves(t, way.name+", put back", "old")
		lacks(way.name + ", put back")
	}
	unloaded(t, s)
	if left := testutil.LeftoverPins(); left != nil {
		t.Errorf("left: %v", left)
	}
}

// removal is an action of another tool.
type removal struct {
	name   string
	remove func(t *testing.T)
}

func removals() []removal {
	if datapath.HasTCX() {
		return []removal{{"link detached", detachEgress}}
	}
	return []removal{
		{"filter deleted", func(t *testing.T) { tc(t, "filter del dev fw0 egress") }},
		{"qdisc deleted", func(t *testing.T) { tc(t, "qdisc del dev fw0 clsact") }},
	}
}

// detachEgress detaches the TCX link by its ID, as bpftool does.
func detachEgress(t *testing.T) {
	t.Helper()
	there, err := link.QueryPrograms(link.QueryOptions{Target: device(t, "fw0").Attrs().Index, Attach: ebpf.AttachTCXEgress})
	if err != nil || len(there.Programs) != 1 {
		t.Fatalf("%d programs, %v", len(there.Programs), err)
	}
	id, _ := there.Programs[0].LinkID()
	l, err := link.NewFromID(id)
	if err == nil {
		err = l.Detach()
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func tc(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.Command("tc", strings.Fields(line)...).CombinedOutput(); err != nil {
		t.Fatalf("tc %s: %v: %s", line, err, out)
	}
}
