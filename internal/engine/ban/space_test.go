package ban

import (
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
)

// TestBatchSparesItself enters a ban again and others with it: the space for those is not that of the first.
func TestBatchSparesItself(t *testing.T) {
	t.Parallel()
	at := func(i byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, i}), 32) }
	var held []netfilter.Element
	for i := range byte(3) { // as many as programs may have; 0 ends first
		held = append(held, netfilter.Element{Prefix: at(i), Timeout: time.Duration(i+1) * time.Minute, Comment: "crowdsec: scan"})
	}
	s := newFilterSpace(4, held)
	for _, i := range []byte{0, 3} {
		if got := s.take(Ban{Prefix: at(i), For: time.Hour, Why: "scan", Origin: CrowdSec}, time.Hour); got != spaceTaken {
			t.Fatalf("%s: %d", at(i), got)
		}
	}
	if len(s.evicted) != 1 || s.evicted[0] != at(1) {
		t.Errorf("evicted %v, want %s, which ends first of those that the batch does not enter", s.evicted, at(1))
	}
}
