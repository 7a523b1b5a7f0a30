// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/compile/iptables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
)

// TestIptablesLists compares the lists of checks with the results of the decoder, for all ports, and for the addresses at the ends of each prefix
// and adjacent to them.
func TestIptablesLists(t *testing.T) {
	s := subject.Lower(t, "checks: {profile: off, bogon-source: on, reflector-source: on}")
	x, err := subject.ToIptables(s.Program)
	if err != nil {
		t.Fatal(err)
	}
	for p := range 1 << 16 {
		frame := fmt.Sprintf("udp 8.8.8.8:%d > 192.0.2.1:53", p)
		want := fails(t, frame, packet.ReflectorSource)
		if got := strings.Contains(x.IPSet, fmt.Sprintf("add floodwall-ports1 %d\n", p)); got != want {
			t.Errorf("%s: in the set of ports: %t, want %t", frame, got, want)
		}
	}
	bogons := entries(t, x.IPSet, "floodwall-bogon-source-")
	if len(bogons) < 20 {
		t.Fatalf("%d bogon prefixes", len(bogons))
	}
	nat64 := netip.MustParsePrefix("64:ff9b::/96")
	for _, p := range bogons {
		r := netipx.RangeOfPrefix(p)
		for _, a := range []netip.Addr{r.From(), r.To(), r.From().Prev(), r.To().Next()} {
			if !a.IsValid() || nat64.Contains(a) {
				continue
			}
			frame := fmt.Sprintf("proto=99 %s > 192.0.2.1", a)
			if a.Is6() {
				frame = fmt.Sprintf("proto=99 %s > 2001:db8::1", a)
			}
			want := fails(t, frame, packet.BogonSource)
			if got := within(bogons, a); got != want {
				t.Errorf("%s: in the set of bogons: %t, want %t", frame, got, want)
			}
		}
	}
}

func fails(t *testing.T, line string, c packet.Check) bool {
	t.Helper()
	spec, err := packet.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return spec.Packet().Failed.Has(c)
}

// entries returns the prefixes that a restore file of ipset adds to sets whose names begin with name.
func entries(t *testing.T, restore, name string) (out []netip.Prefix) {
	for line := range strings.Lines(restore) {
		words := strings.Fields(line)
		if words[0] != "add" || !strings.HasPrefix(words[1], name) {
			continue
		}
		p, err := netip.ParsePrefix(words[2])
		if err != nil {
			p = netip.PrefixFrom(netip.MustParseAddr(words[2]), netip.MustParseAddr(words[2]).BitLen())
		}
		out = append(out, p)
	}
	return out
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// TestIptablesLeft checks that each check is either made or left out with a reason. The lines of a check that is made have a comment.
func TestIptablesLeft(t *testing.T) {
	for c := range packet.NumChecks {
		x, err := subject.ToIptables(subject.Lower(t, fmt.Sprintf("checks: {profile: off, %s: on}", c)).Program)
		if err != nil {
			t.Fatal(err)
		}
		comment, done := x.Checks[c]
		left := slices.ContainsFunc(x.Left, func(l plan.LeftCheck) bool { return l.Check == c && l.Why != "" })
		if !done && !left {
			t.Errorf("%s is neither done nor left: %v", c, x.Left)
		}
		if done && !strings.Contains(x.V4+x.V6, "--comment \""+comment+"\"") {
			t.Errorf("%s: no line has the comment %s", c, comment)
		}
	}
}

// TestIptablesCounts checks that the initial count of each reason is in exactly one line.
func TestIptablesCounts(t *testing.T) {
	s := subject.Lower(t, `
checks: {profile: off, port-zero: on, ttl-zero: on}
default: drop
rules: [{name: a, proto: [tcp, gre], not: {port: [22, 80]}, then: pass}, {name: b, family: ipv6, port: 53, then: drop}]
`)
	plan, err := plan.Hoist(s.Program, plan.TargetIptables)
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]uint64{}
	x, err := iptables.Generate(plan, iptables.Options{Counts: func(reason string) (packets, bytes uint64) {
		asked[reason]++
		return uint64(len(asked)), 7
	}})
	if err != nil {
		t.Fatal(err)
	}
	for reason, comment := range map[string]string{
		"a": x.Rules[0], "b": x.Rules[1], "default": x.Default, "port-zero": x.Checks[packet.PortZero], "ttl-zero": x.Checks[packet.TTLZero],
	} {
		counting := 0
		for line := range strings.Lines(x.V4 + x.V6) {
			named := strings.Contains(line, "--comment "+comment+" ") || strings.Contains(line, "--comment \""+comment+"\" ")
			if named && strings.HasPrefix(line, "[") && strings.Contains(line, ":7] -A ") {
				counting++
			}
		}
		if counting != 1 || asked[reason] != 1 {
			t.Errorf("%s goes on in %d lines and was asked for %d times, want 1:\n%s%s", reason, counting, asked[reason], x.V4, x.V6)
		}
	}
}

// TestIptablesErrors checks the errors for policies that iptables cannot implement.
func TestIptablesErrors(t *testing.T) {
	for _, tt := range []struct{ policy, want string }{
		{"rules: [{name: tagged, vlan: 10, then: drop}]", `policy.yaml:2:9: rule "tagged": vlan: the VLAN tag is gone when IP has the packet`},
		{"rules: [{name: marked, flags: ece, then: drop}]", `policy.yaml:2:9: rule "marked": flags: iptables tests the flags fin, syn, rst, psh, ack and urg only`},
		{"rules: [{name: old, from: $s, then: drop}]\nsets: {s: {dynamic: true, max: 9, timeout: 900h}}",
			`set "s": timeout: ipset keeps an entry for 2147483 seconds at most, and 3240000 are asked for`},
		{exceptions(12), ""},
		{exceptions(13), `policy.yaml:28:5: rule "f12": not: it needs a chain for what follows it, like 12 rules before it, and iptables-nft allows no more`},
	} {
		_, err := subject.ToIptables(subject.Lower(t, "checks: off\n"+tt.policy).Program)
		if got := fmt.Sprint(err); err == nil && tt.want != "" || err != nil && got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.policy, got, tt.want)
		}
		var hint interface{ Hint() string }
		if err != nil && (!errors.As(err, &hint) || hint.Hint() == "") {
			t.Errorf("%s: no hint", tt.policy)
		}
	}
}

// exceptions returns a policy with n rules that pass packets. In IPv6, each needs a chain for the rules that follow it.
func exceptions(n int) string {
	text := "rules:\n"
	for i := range n {
		text += fmt.Sprintf("  - {name: n%d, from: 10.0.%d.0/24, not: {proto: [tcp, udp]}, then: pass}\n", i, i)
		text += fmt.Sprintf("  - {name: f%d, from: '2001:db8:%d::/48', family: ipv6, fragment: later, then: pass}\n", i, i)
	}
	return text
}
