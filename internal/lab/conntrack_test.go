// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"
)

func TestConntrack(t *testing.T) {
	p := newPair(t)
	h := p.b.Host
	empty, err := h.Conntrack()
	if err != nil || empty.Entries != 0 || empty.Max == 0 {
		t.Fatalf("%+v, %v; want an empty table", empty, err)
	}
	const n = 2*fillBatch + 7
	start := time.Now()
	if err := h.FillConntrack(n); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d connections in %v", n, time.Since(start))
	if c, err := h.Conntrack(); err != nil || c.Entries != n || c.Drops+c.EarlyDrops != 0 {
		t.Errorf("%+v, %v; want %d entries", c, err, n)
	}
	if err := h.FillConntrack(1); err == nil {
		t.Error("a connection is added that is there")
	}
	if other, err := p.a.Host.Conntrack(); err != nil || other.Entries != 0 {
		t.Errorf("%+v, %v; want nothing in another host's table", other, err)
	}
	if err := h.FlushConntrack(); err != nil {
		t.Fatal(err)
	}
	if c, err := h.Conntrack(); err != nil || c.Entries != 0 {
		t.Errorf("%+v, %v; want an empty table", c, err)
	}
}

func TestParseDrops(t *testing.T) {
	const stat = "entries  found drop early_drop\n00000005  00000000 0000000a 00000001\n00000005  00000001 00000001 00000000\n"
	if drops, early, err := parseDrops(stat); drops != 11 || early != 1 || err != nil {
		t.Errorf("%d, %d, %v; want 11 and 1", drops, early, err)
	}
	if _, _, err := parseDrops("entries\n1 2\n"); err == nil {
		t.Error("a line that is longer than the head is taken")
	}
}
