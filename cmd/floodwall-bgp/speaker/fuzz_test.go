// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/bgp/flowspec"
	"github.com/floodwall/floodwall/internal/bgp/wire"
)

// FuzzWanted parses any bytes as a Wanted. An accepted Wanted must become routes that routers can parse. Each route must be to this network's own
// prefixes and for a limited time.
func FuzzWanted(f *testing.F) {
	for _, kind := range []wire.Kind{wire.RTBH, wire.FlowSpec} {
		text, err := json.Marshal(wantedFor(func(w *wire.Wanted) { w.Announcements[0].Kind = kind }))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var w wire.Wanted
		if json.Unmarshal(text, &w) != nil || w.Check() != nil {
			return
		}
		for i := range w.Announcements {
			a := &w.Announcements[i]
			if !w.Upstream.Own(a.Flow.To) || a.End.Sub(a.Start) > 7*24*time.Hour {
				t.Fatalf("%+v is taken", a)
			}
			p, err := pathOf(w.Upstream, a)
			if err != nil {
				t.Fatalf("%s is taken, and no route: %v", a.Flow, err)
			}
			raw, err := p.Nlri.Serialize()
			if err != nil {
				t.Fatalf("%s cannot be written: %v", a.Flow, err)
			}
			if a.Kind == wire.RTBH {
				continue
			}
			flow, rest, err := flowspec.Decode(raw, a.Flow.To.Addr().Is6())
			if err != nil || len(rest) > 0 || flow.DestinationPrefix() != a.Flow.To {
				t.Fatalf("%s is announced as %s: %v", a.Flow, flow, err)
			}
		}
	})
}
