// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestZonesBesideOtherGuard checks a guard with the key names, and a guard without names at another port. The program must not look up the names of
// queries at the second port. These queries must charge no limit: neither the first limit of the policy, which belongs to another service, nor the
// limits that prolong the flood.
func TestZonesBesideOtherGuard(t *testing.T) {
	const web = packet.PortUDP + uint32(99)
	const second = packet.PortUDP + uint32(54)
	p := zonedProgram()
	p.Limits = append([]ir.Limit{{Rule: "web", Rate: 100, Per: 24 * time.Hour, Burst: 5}}, p.Limits...)
	p.Guards[0].Names = &ir.Names{Flooded: 1, GoOn: 2, New: 3}
	other := p.Guards[0]
	other.Service, other.Names, other.Ports = "second", nil, []ir.Range{{First: second, Last: second}}
	p.Guards = append(p.Guards, other)
	is := func(f packet.Field, v uint32) ir.Match {
		return ir.Match{Field: f, Values: []ir.Range{{First: v, Last: v}}}
	}
	p.Rules = append(p.Rules,
		ir.Rule{Name: "second", Verdict: ir.Drop, Match: []ir.Match{is(packet.DPort, second), is(packet.DNS, packet.DNSMalformed), is(packet.Verified, 0)}},
		ir.Rule{Name: "web", Verdict: ir.Drop, Match: []ir.Match{is(packet.DPort, web)}, Over: []int{0}})
	x, err := xdpgen.Generate(p, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	testutil.RequireRoot(t)
	z := &zoned{Program: (&subject.Subject{Program: p}).Load(t, x), program: p}
	z.forget(t)
	for i := range negativeNames + 1 {
		name := fmt.Sprintf("x%d.example.org", i)
		z.Egress().Test(responseFrame(t, "198.51.100.7", response(t, name, dns.TypeA, dns.RcodeNameError, nil, "example.org")))
	}
	verdict := func(frame []byte, when time.Duration, charge bool) ir.Verdict {
		t.Helper()
		a, err := z.AskAt(datapath.Question{Frame: frame, Now: clock(t, unix.CLOCK_MONOTONIC) + when, Charge: charge})
		if err != nil {
			t.Fatal(err)
		}
		return ir.Verdict(a.Verdict)
	}
	atFirst := ask(t, "198.51.100.9", "no.example.org", "")
	if got := verdict(atFirst, 5*time.Second, false); got != ir.Truncate {
		t.Fatalf("a query at the guard with names gets %s", got)
	}
	atSecond := subject.FramesOf(t, "udp 198.51.100.9:6666 > 192.0.2.53:54 dns=A,no.example.org")[0].Frame
	for range 3 * negativeNames {
		if got := verdict(atSecond, 5*time.Second, true); got != ir.Pass {
			t.Fatalf("a query at the guard without names gets %s", got)
		}
	}
	if got := verdict(subject.FramesOf(t, "udp 198.51.100.9:4000 > 192.0.2.53:99 len=60")[0].Frame, 5*time.Second, false); got != ir.Pass {
		t.Errorf("queries at the guard without names use up the limit of another service: it gets %s", got)
	}
	if got := verdict(atFirst, 13*time.Second, false); got != ir.Pass {
		t.Errorf("queries at the guard without names extend the flood: at the other one a query gets %s", got)
	}
}
