// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"testing"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// Every kind of packet that `program` measures must be of the kind in its name, with any policy. The state of a protection is checked in each
// measurement, see connect().
func TestPacketKinds(t *testing.T) {
	for _, test := range []struct {
		policy, other string
		kinds         []packetKind
		reasons       map[string]string // of kinds; other: of all other kinds
	}{
		{programPolicy("strict", 20), "default", packetKinds, map[string]string{"arp": "not-ip", "listed": "listed", "fragment": "essential:fragments"}}, // bans are empty here
		{serviceColumns()[0].text, "web", serviceKinds(), nil},
	} {
		c, err := control.CompileSource("policy.yaml", []byte("devices: [eth0]\n"+test.policy))
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range test.kinds {
			spec, err := packet.Parse(k.line)
			if err != nil {
				t.Errorf("%s: %v", k.name, err)
				continue
			}
			e, err := c.Explain(spec, plan.TargetXDP)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := e.Reason, cmp.Or(test.reasons[k.name], test.other); got != want {
				t.Errorf("%s: %s: %s, want %s", k.name, k.line, got, want)
			}
		}
	}
}
