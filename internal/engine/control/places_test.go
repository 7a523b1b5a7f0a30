package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// placesPolicy asks for bytes at places in all kinds of packets: in headers that nft knows, so that it would list fields
// of theirs, and of protocols that it does not know.
const placesPolicy = `
checks: off
rules:
  - {name: odd, proto: 253, payload: {at: {offset: 0, bytes: "|01|", mask: "|01|", from: header}}, then: drop}
  - {name: no-odd, not: {proto: [tcp, udp, icmp, icmpv6], payload: {at: {offset: 3, bytes: "|00|", mask: "|03|", from: header}}}, then: drop}
  - {name: bits, proto: icmp, payload: {at: {offset: 0, bytes: "|00 00|", mask: "|01 80|", from: header}}, then: drop}
  - {name: type, proto: icmpv6, payload: {at: {offset: 0, bytes: "|80 00|", mask: "|80 00|", from: header}}, then: drop}
  - {name: port, proto: [tcp, udp], payload: {at: {offset: 2, bytes: "|00 16|", from: header}}, then: drop}
  - {name: data, family: ipv4, payload: {at: [{offset: 0, bytes: "|00 00 00|", mask: "|01 00 80|"}, {offset: 4, bytes: "|00|", mask: "|80|"}]}, then: drop}
  - {name: no-data, port: [udp/53, tcp/53], not: {payload: {at: {offset: 1, bytes: "|00|", mask: "|80|"}}}, then: drop}
`

// TestPlacesOnNftables has packets meet places on nftables, whose tool must not fail at listing them: apply compares what the
// kernel holds, status reads counters, and explain --live copies the rules by their listing.
func TestPlacesOnNftables(t *testing.T) {
	testutil.RequireTool(t, "nft")
	h := newBareHost(t)
	if h == nil {
		return
	}
	judge := h.newJudge()
	c, err := control.CompileSource("policy.yaml", []byte("devices: [fw0]\n"+placesPolicy))
	if err != nil {
		t.Fatal(err)
	}
	hints := sameHints()
	hints.Values[packet.Proto] = []uint32{1, 6, 17, 253}
	frames := sameFrames(t, 10_000, hints)
	passes, want := definition(c, frames)
	delete(want, "default") // it passes behind a rule at raw, where it is not counted
	h.applyTo(plan.TargetNftables, placesPolicy)
	h.meet("nftables", judge, frames, passes)
	if diff := cmp.Diff(want, h.tallies()); diff != "" {
		t.Errorf("nftables counts otherwise than Eval (-want +got):\n%s", diff)
	}
	for _, r := range c.Program.Rules {
		if want[r.Name].Packets == 0 {
			t.Errorf("no packet is for rule %s", r.Name)
		}
	}
	h.wantAnswer("ICMP", "icmp 198.51.100.7 > 192.0.2.1 echo-request", "drop bits")
	h.wantAnswer("UDP", "udp 198.51.100.7:5 > 192.0.2.1:22", "drop port")
	s, err := h.Status(t.Context())
	if err != nil || s.Warnings != nil || !s.Default.Uncounted {
		t.Errorf("warnings %q, error %v, default %+v", s.Warnings, err, s.Default)
	}
}

// TestUncounted has the default be counted, and not, by turns: by applies of policies whose rule is at ingress, where the
// default counts, and at raw, where it does not. What it has decided where it was counted stays known. Of IPv6, what the
// kernel sends by itself comes as well.
func TestUncounted(t *testing.T) {
	testutil.RequireTool(t, "nft")
	h := newHost(t)
	if h == nil {
		return
	}
	want := uint64(0)
	for turn, stage := range []string{"ingress", "raw", "raw", "ingress", "ingress", "raw"} {
		h.applyTo(plan.TargetNftables, "checks: off\nrules:\n  - {name: six, family: ipv6, then: drop}\n"+
			"  - {name: x, from: 198.51.100.1, placement: "+stage+", then: drop}\n")
		h.send(10, "udp 198.51.100.7:5 > 192.0.2.1:53")
		if stage == "ingress" {
			want += 10
		}
		s, err := h.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Default.Packets != want || s.Default.Uncounted != (stage == "raw") {
			t.Errorf("turn %d, at %s: the default has %d packets, uncounted %v; want %d", turn, stage, s.Default.Packets, s.Default.Uncounted, want)
		}
	}
}
