// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
)

var (
	hosts    = &ir.Prefixes{V4: 32, V6: 64}
	networks = &ir.Prefixes{V4: 8, V6: 8}
)

// TestLimitSize checks the size of tables in memory.
func TestLimitSize(t *testing.T) {
	for _, test := range []struct {
		limit ir.Limit
		want  uint32 // number of buckets of 64 bytes
	}{
		{ir.Limit{Rate: 1000, Per: time.Second, Burst: 5}, 1},
		{ir.Limit{Rate: 1_000_000, Per: time.Second, Burst: 5, Src: hosts}, 1 << 10},
		{ir.Limit{Rate: 1000, Per: time.Second, Burst: 5, Src: hosts}, 1 << 12},
		{ir.Limit{Rate: 1, Per: day, Burst: 5, Src: hosts}, 1 << 20},
		{ir.Limit{Rate: 1, Per: day, Burst: 5, Src: networks}, 1 << 8},
		{ir.Limit{Rate: 1, Per: day, Burst: 5, Src: networks, Dst: networks}, 1 << 16},
		{ir.Limit{Rate: 1, Per: day, Burst: 5, Src: hosts, Max: 30_000}, 1 << 14},
		{ir.Limit{Rate: 1, Per: day, Burst: 5, Src: hosts, Max: 1}, 1},
		{ir.Limit{Rate: 1_000_000, Per: time.Second, Burst: 12_000, Bits: true, Src: hosts}, 1 << 11},
	} {
		if got := limitBuckets(t, test.limit); got != test.want {
			t.Errorf("limit %+v: %d buckets, want %d", test.limit, got, test.want)
		}
	}
}

// TestLimitsTogether checks that many large tables share the memory for tables. Tables whose size the policy sets do not share it.
func TestLimitsTogether(t *testing.T) {
	slow := ir.Limit{Rate: 1, Per: day, Burst: 5, Src: hosts}
	asked := slow
	asked.Max = 3 << 21
	if got, want := limitBuckets(t, append(slices.Repeat([]ir.Limit{slow}, 7), asked)...), uint32(1<<22+1<<21); got > want || got < want/2 {
		t.Errorf("%d buckets for 7 limits, and one that is large because of max; want at most %d", got, want)
	}
}

func limitBuckets(t *testing.T, limits ...ir.Limit) uint32 {
	t.Helper()
	program := &ir.Program{Limits: limits}
	for i := range limits {
		program.Rules = append(program.Rules, ir.Rule{Name: "r", Over: []int{i}})
	}
	x, err := xdpgen.Generate(program, xdpgen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return x.Shapes[image.Limits].Entries
}

// TestLimitNotes checks that there are only notes about limits whose tables a flood could overflow.
func TestLimitNotes(t *testing.T) {
	notes := compile.LimitNotes(&ir.Program{Limits: []ir.Limit{
		{Rule: "fast", Rate: 1000, Per: time.Second, Burst: 5, Src: hosts},
		{Rule: "slow", Rate: 1, Per: time.Minute, Burst: 5, Src: hosts},
		{Rule: "small", Rate: 1000, Per: time.Second, Burst: 5, Src: hosts, Max: 3 << 10},
		{Rule: "few", Rate: 1, Per: day, Burst: 5, Src: networks},
		{Rule: "one", Rate: 1, Per: day, Burst: 5},
	}}, plan.TargetXDP)
	want := []string{
		`limit "slow": its table in XDP holds 3145728 prefixes; a flood from more than 52429 random sources a second makes it forget the least offenders; max: raises it`,
		`limit "small": its table in XDP holds 3072 prefixes; a flood from more than 3072000 random sources a second makes it forget the least offenders; max: raises it`,
	}
	if !slices.Equal(notes, want) {
		t.Errorf("notes are\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
}

// TestRateNotes checks the notes about netfilter rates that are higher than those of the policy.
func TestRateNotes(t *testing.T) {
	packets := func(rate uint64) ir.Limit {
		return ir.Limit{Rule: "r", Rate: rate, Per: time.Second, Burst: 5, Src: hosts}
	}
	for _, tt := range []struct {
		target plan.Target
		limit  ir.Limit
		want   string
	}{
		{plan.TargetNftables, packets(7000), ""},
		{plan.TargetNftables, packets(9_950_000),
			`limit "r": nftables cuts the time of a packet to whole units of 1ns, and lets 0.5% more pass than the rate says`},
		{plan.TargetNftables, ir.Limit{Rule: "r", Rate: 10_000_000_000, Per: time.Second, Burst: 1 << 40, Bits: true},
			`limit "r": nftables cuts the time of a packet to whole units of 1ns, and lets 2.2% more of the smallest packets pass than the rate says`},
		{plan.TargetIptables, packets(1000), ""},
		{plan.TargetIptables, packets(7000),
			`limit "r": iptables cuts the time of a packet to whole units of 1µs, and lets 0.6% more pass than the rate says`},
		{plan.TargetXDP, packets(9_950_000), ""},
	} {
		got := strings.Join(compile.LimitNotes(&ir.Program{Limits: []ir.Limit{tt.limit}}, tt.target), "\n")
		if got != tt.want {
			t.Errorf("%s, %d/s: note %q, want %q", tt.target, tt.limit.Rate, got, tt.want)
		}
	}
}
