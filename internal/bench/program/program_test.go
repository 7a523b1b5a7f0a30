package program

import (
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/packet"
)

// Every kind of packet that `program` measures must be one that its name says, whatever the policy decides.
func TestPacketKinds(t *testing.T) {
	c, err := control.CompileSource("policy.yaml", []byte("devices: [eth0]\n"+policy("strict", 20)))
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{"arp": "not-ip", "listed": "listed"}
	for _, k := range packetKinds {
		spec, err := packet.Parse(k.line)
		if err != nil {
			t.Errorf("%s: %v", k.name, err)
			continue
		}
		want := reasons[k.name]
		if want == "" {
			want = "default" // bans are empty here
		}
		e, err := c.Explain(spec, compile.TargetXDP)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Reason; got != want {
			t.Errorf("%s: %s: %s, want %s", k.name, k.line, got, want)
		}
	}
}
