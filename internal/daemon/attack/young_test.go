// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// TestYoungUpload begins an upload a moment after the kernel's connections were listed, because another load rose for a tenth of a second. It must
// not count as an attack.
func TestYoungUpload(t *testing.T) {
	t.Parallel()
	of := exchange{2000, func(r *rand.Rand) []string { // none of the few acknowledgements is sampled
		return []string{tcpFrom("41.7.9.20:50000", 443, "A", r.Uint32(), 7, fmt.Sprintf("len=1500 payload=0x%08x", r.Uint32()))}
	}}
	for _, ago := range []time.Duration{0, 200 * time.Millisecond, 600 * time.Millisecond} {
		s := newStage(t)
		usual := usualMix()
		s.play(quietTime, usual...)
		var kernel []datapath.Connection
		s.Watcher.list = func() ([]datapath.Connection, error) { return append([]datapath.Connection(nil), kernel...), nil }
		if _, err := s.open(); err != nil {
			t.Fatal(err)
		}
		s.play(ago, usual...)
		kernel = append(kernel, datapath.Connection{Client: netip.MustParseAddrPort("41.7.9.20:50000"), Server: netip.MustParseAddrPort("192.0.2.1:443")})
		s.exchanges(6*time.Second, &of, usual...)
		s.keep()
		if len(s.Reports) > 0 || s.honestDropped > 0 {
			t.Errorf("listed %v before: %+v, %d packets are dropped", ago, s.Events, s.honestDropped)
		}
	}
}
