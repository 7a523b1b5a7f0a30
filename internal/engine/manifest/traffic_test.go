// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/model/cost"
)

// Shortened content of files in /proc of Linux 6.18.
const (
	someSNMP = "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards InDelivers\n" +
		"Ip: 1 64 1000 0 0 700 0 0 200\nIcmp: InMsgs InErrors\nIcmp: 3 4\n"
	someSNMP6 = "Ip6InReceives                   \t50\nIp6InDelivers                   \t40\nIp6OutForwDatagrams             \t9\n"
	someStat  = "cpu  100 0 200 3000 5 0 123 0 0 0\ncpu0 50 0 100 1500 2 0 60 0 0 0\nintr 1 2\n"
)

// TestCounters reads counters of the kernel, and counters that do not exist.
func TestCounters(t *testing.T) {
	got := []uint64{
		ipCounter([]byte(someSNMP), "InDelivers"), ipCounter([]byte(someSNMP), "ForwDatagrams"), ipCounter([]byte(someSNMP), "None"),
		ipCounter(nil, "InDelivers"), ip6Counter([]byte(someSNMP6), "Ip6InDelivers"), ip6Counter([]byte(someSNMP6), "Ip6OutForwDatagrams"),
		ip6Counter(nil, "Ip6InDelivers"), uint64(softirq([]byte(someStat)).Milliseconds()), uint64(softirq(nil)),
	}
	if diff := cmp.Diff([]uint64{200, 700, 0, 0, 40, 9, 0, 1230, 0}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestSince compares two samples, with counters that continue, counters that were reset, and new counters.
func TestSince(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	then := &Sample{Time: begin, Arrived: 100, Local: 50, Forwarded: 10, All: 100, Rules: map[string]uint64{"on": 10, "anew": 90, "idle": 5}}
	now := &Sample{Time: begin.Add(2 * time.Second), Arrived: 150, Local: 60, Forwarded: 10, All: 400, Rules: map[string]uint64{"on": 15, "anew": 3, "idle": 5, "new": 7}}
	want := cost.Mix{Seconds: 2, Arrived: 300, Local: 10, Forwarded: 0, Rules: map[string]uint64{"on": 5, "anew": 3, "new": 7}}
	if diff := cmp.Diff(want, now.Since(then)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
