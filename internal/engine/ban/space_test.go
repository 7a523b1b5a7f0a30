// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// TestBatchSparesItself adds an existing ban again, together with new bans. The existing ban must not be evicted to make space for the new ones.
func TestBatchSparesItself(t *testing.T) {
	t.Parallel()
	at := func(i byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 32) }
	var held []netfilter.Element
	for i := range byte(3) { // as many entries as programs may have; entry 0 ends first
		held = append(held, netfilter.Element{Prefix: at(i), Timeout: time.Duration(i+1) * time.Minute, Comment: "crowdsec: scan"})
	}
	s := newFilterSpace(manifest.Set{Max: 4, Timeout: time.Hour}, held)
	for _, i := range []byte{0, 3} {
		if err := s.take(Ban{Prefix: at(i), Until: After(time.Hour), Why: "scan", Origin: CrowdSec}); err != nil {
			t.Fatalf("%s: %v", at(i), err)
		}
	}
	if len(s.evicted) != 1 || s.evicted[0] != at(1) {
		t.Errorf("evicted %v, want %s, which ends first of those that the batch does not enter", s.evicted, at(1))
	}
}
