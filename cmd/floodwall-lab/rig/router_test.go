// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"net/netip"
	"testing"
)

func TestFullTable(t *testing.T) {
	const n = 20_000
	lengths, seen := map[int]int{}, map[netip.Prefix]bool{}
	for p, via := range FullTable(n) {
		if seen[p] || p != p.Masked() || ofRouter(p) || !uplinkNet.Contains(via) {
			t.Fatalf("route %s via %s", p, via)
		}
		seen[p] = true
		lengths[p.Bits()]++
	}
	if len(seen) != n || lengths[24] < n/2 || lengths[24] > 2*n/3 || lengths[16] == 0 || lengths[15] > 0 {
		t.Errorf("%d routes, by length %v", len(seen), lengths)
	}
}
