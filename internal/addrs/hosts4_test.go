package addrs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/testutil"
)

// Few listed addresses of a /24 are kept one by one, many get it a line.
func TestTableHosts(t *testing.T) {
	for _, row := range []struct {
		name         string
		sets         []string
		lines, hosts int
	}{
		{"one", []string{"192.0.2.1"}, 0, 1},
		{"the first and the last of all", []string{"0.0.0.0 255.255.255.255"}, 0, 2},
		{"six", []string{"192.0.2.1 192.0.2.3 192.0.2.5 192.0.2.128/31 192.0.2.255"}, 0, 6},
		{"seven", []string{"192.0.2.1 192.0.2.3 192.0.2.5 192.0.2.128/30"}, 1, 0},
		{"of three classes", []string{"192.0.2.1 192.0.2.2", "192.0.2.2 192.0.2.3"}, 0, 3},
		{"across two /24s", []string{"192.0.1.254-192.0.2.1"}, 0, 4},
		{"beside a uniform /24", []string{"192.0.2.0/24 192.0.3.9"}, 1, 1},
		{"beside a line", []string{"192.0.2.0/25 192.0.3.9"}, 1, 1},
		{"over a background", []string{"10.0.0.0/16", "10.0.2.1"}, 1, 0},
		{"over a background, three classes", []string{"10.0.0.0/16", "10.0.2.1 10.0.2.2", "10.0.2.2"}, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := testutil.Random(t)
			var sets []naive
			for _, text := range row.sets {
				sets = append(sets, parse(t, strings.Fields(text)...))
			}
			e := checkTable(t, r, sets)
			if e.V4.Lines != row.lines || e.V4.Hosts != row.hosts {
				t.Errorf("%d lines, %d hosts; want %d, %d", e.V4.Lines, e.V4.Hosts, row.lines, row.hosts)
			}
		})
	}
}

// Buckets overflow into their neighbours, also from the last to the first.
func TestTableManyHosts(t *testing.T) {
	r := testutil.Random(t)
	var b Builder
	listed := map[uint32]bool{}
	for range 50_000 {
		a := r.Uint32()
		listed[a] = true
		if err := b.Add(netip.PrefixFrom(addr4(a), 32)); err != nil {
			t.Fatal(err)
		}
	}
	table, err := Build([]*Set{b.Set()})
	if err != nil {
		t.Fatal(err)
	}
	m := table.V4.NewMemory()
	if err := table.V4.Encode(m); err != nil {
		t.Fatal(err)
	}
	overflows := 0
	for i := range table.V4.HostBuckets {
		if native.Uint32(m.Hosts[i*HostBucketBytes+hostMore:]) != 0 {
			overflows++
		}
	}
	if overflows == 0 {
		t.Error("no bucket overflows: the test shows nothing")
	}
	for a := range listed {
		if table.V4.Lookup(m, a) != 1 {
			t.Fatalf("%s is listed, class 0", addr4(a))
		}
		if other := a ^ 1<<r.IntN(32); table.V4.Lookup(m, other) == 1 != listed[other] {
			t.Fatalf("%s: class %d", addr4(other), table.V4.Lookup(m, other))
		}
	}
}
