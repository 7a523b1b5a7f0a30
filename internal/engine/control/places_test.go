// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// placesPolicy tests bytes at offsets in all kinds of packets. Some bytes are in headers that nft knows: it would list their fields by name. Other
// bytes are in protocols that nft does not know.
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

// TestPlacesOnNftables sends packets to rules that test bytes at offsets on nftables. The tool nft must be able to list these rules, because three
// commands use its list: apply compares it with the kernel's rules, status reads counters from it, and explain --live copies the rules from it.
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
	delete(want, "default") // the default comes after a rule at raw, where it is not counted
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

// TestUncounted alternates between two policies. One has its rule at ingress, where the default is counted. The other has it at raw, where the
// default is not counted. The earlier counts of the default must be kept. With IPv6, packets that the kernel itself sends also arrive.
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
