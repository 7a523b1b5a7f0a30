// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go4.org/netipx"

	"github.com/floodwall/floodwall/internal/compile/nftables"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestNftCounts checks how random policies that are decided at ingress count random packets from a wire. Each counter must agree with Eval, except
// for packets that nftables, as documented, cannot recognize.
func TestNftCounts(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	w := subject.NewWire(t)
	_, seed := subject.Seeded(t)
	policies, counted := testutil.Scaled(20, 1000), 0
	for i := range policies {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		text, dynamic, write := subject.RandomPolicy(t, r, 1+r.IntN(6))
		s := subject.Lower(t, text).Optimized()
		for _, name := range dynamic {
			s.Insert(t, name, write.Members())
		}
		s.Program.Checks = s.Program.Checks.Without(packet.OwnSource)
		for i := range s.Program.Rules {
			if rule := &s.Program.Rules[i]; rule.Verdict == ir.Drop && r.IntN(3) == 0 {
				rule.Verdict = ir.Reject
			}
		}
		x, err := atIngress(s.Program)
		if err != nil || x == nil {
			continue
		}
		subject.Nft(t, x.Script+elements(s, x), "-f", "-")
		hints := subject.RuleHints(s, write)
		var frames [][]byte
		for range 400 {
			h := hints[r.IntN(len(hints))]
			if frame := packet.Random(r, h); told(s, x, frame) && w.Send(frame) {
				frames = append(frames, frame)
			}
		}
		counted += len(frames)
		sameCounters(t, w, fmt.Sprintf("policy %d", i), s, x, frames)
		subject.Nft(t, "", "delete", "table", "inet", x.Table)
	}
	t.Logf("%d packets", counted)
	if counted < policies*20 {
		t.Errorf("only %d packets", counted)
	}
}

// TestNftChecks checks how each check alone counts the packets of checkTests.
func TestNftChecks(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	w := subject.NewWire(t)
	for check := range packet.NumChecks {
		s := subject.Lower(t, "checks: {profile: off, "+check.String()+": on}")
		x, err := atIngress(s.Program)
		if err != nil {
			t.Fatal(err)
		}
		if x == nil || x.Checks[check] == "" || check == packet.VLANDepth {
			continue // own-source, checks that nft does not perform, and a check with a table of its own (e2e/traffic)
		}
		subject.Nft(t, x.Script, "-f", "-")
		var frames [][]byte
		for _, f := range subject.FramesOf(t, subject.CheckTests[check].Fail+subject.CheckTests[check].Pass) {
			if told(s, x, f.Frame) && w.Send(f.Frame) {
				frames = append(frames, f.Frame)
			}
		}
		if len(frames) == 0 {
			t.Errorf("%s: no packets", check)
		}
		sameCounters(t, w, check.String(), s, x, frames)
		subject.Nft(t, "", "delete", "table", "inet", x.Table)
	}
}

// routedWire returns a wire whose packets reach the raw stage, including IPv6 packets.
func routedWire(t *testing.T) *subject.Wire {
	t.Helper()
	w := subject.NewWire(t)
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestNftFragments sends later fragments of IPv6 whose protocol is an extension header. The kernel's test of the protocol fails for them, whether
// it tests for equality or for inequality.
func TestNftFragments(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	w := routedWire(t)
	protoRules := "rules:\n"
	for proto := 40; proto < 70; proto++ { // enough protocols for the generator to use a verdict map
		protoRules += fmt.Sprintf("  - {name: of-%d, proto: %d, length: 60-9000, then: drop}\n", proto, proto)
	}
	const sample = `
proto=0 2606::1 > 2606::2 frag=later
proto=6 2606::1 > 2606::2 frag=later
proto=17 2606::1 > 2606::2 frag=later
proto=43 2606::1 > 2606::2 frag=later
proto=44 2606::1 > 2606::2 frag=later
proto=51 2606::1 > 2606::2 frag=later
proto=59 2606::1 > 2606::2 frag=later
proto=60 2606::1 > 2606::2 frag=later
proto=60 fe80::1 > 2606::2 frag=later
proto=17 fe80::1 > 2606::2 frag=later
proto=99 fe80::1 > 2606::2 frag=later
proto=99 8.8.8.8 > 1.1.1.1 frag=later
udp [2606::1]:5 > [2606::2]:80 ext=frag,dst
udp [2606::1]:5 > [2606::2]:80 ext=dst
proto=60 2606::1 > 2606::2 frag=8 mf
`
	for _, text := range []string{
		"rules: [{name: one, proto: 60, then: drop}]",
		"rules: [{name: all, then: drop}]",
		"rules: [{name: pair, proto: [44, udp], from: \"2606::/16\", then: drop}]",
		"rules: [{name: fragments, fragment: later, proto: 60, then: drop}]",
		"rules: [{name: whole, fragment: none, proto: [60, udp], then: drop}]",
		"rules: [{name: others, not: {proto: [udp, tcp, 44]}, then: drop}]",
		"rules: [{name: limited, proto: [60, udp, 44], over: {rate: 1/day, burst: 1}, then: reject}]",
		"rules: [{name: rejected, over: {rate: 1/day, burst: 1}, then: reject}]",
		protoRules,
	} {
		s := subject.Lower(t, text)
		s.Program.Placement = ir.Placement(plan.StageRaw)
		pl, err := plan.Hoist(s.Program, plan.TargetXDP)
		if err != nil {
			t.Fatal(err)
		}
		x, err := nftables.Generate(pl, nftables.Options{Devices: []string{"eth0"}})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(x.Script, " vmap ") != (text == protoRules) {
			t.Errorf("%s: a verdict map:\n%s", text, x.Script)
		}
		accepts(t, x.Script)
		subject.Nft(t, x.Script, "-f", "-")
		var frames [][]byte
		for _, f := range subject.FramesOf(t, sample) {
			if !w.Send(f.Frame) {
				t.Fatal("a frame was not sent")
			}
			frames = append(frames, f.Frame)
		}
		if rule := &s.Program.Rules[0]; rule.Over == nil {
			sameCounters(t, w, text, s, x, frames)
		} else { // of the packets that pass all other tests, the burst passes
			rule.Over = nil
			want := map[string]uint64{}
			for _, f := range frames {
				want[s.Counter(f, x.Checks, x.Rules, x.Default)]++
			}
			want[x.Rules[0]]--
			want[x.Default]++
			if got := subject.Settled(t, x.Table, len(frames)); !maps.Equal(got, want) {
				t.Errorf("%s: counters %v, want %v\n%s", text, got, want, x.Script)
			}
		}
		subject.Nft(t, "", "delete", "table", "inet", x.Table)
	}
}

// TestNftPayload sends segments whose header states a length below 20 bytes. Such segments have no payload. Bytes of the header must not be used as
// payload.
func TestNftPayload(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	w := subject.NewWire(t)
	for _, text := range []string{
		`rules: [{name: has, proto: tcp, payload: {at: {offset: 4, bytes: "|00 00 00 01|"}}, then: drop}]`,
		`rules: [{name: has-not, port: tcp/99, not: {payload: {at: {offset: 4, bytes: "|00 00 00 01|"}}}, then: drop}]`,
	} {
		s := subject.Lower(t, "checks: off\n"+text)
		x, err := subject.ToNftables(s.Program, "")
		if err != nil {
			t.Fatal(err)
		}
		accepts(t, x.Script)
		subject.Nft(t, x.Script, "-f", "-")
		var frames [][]byte
		for _, f := range subject.FramesOf(t, `
tcp 8.8.8.8:5 > 1.1.1.1:99 A ack=1 doff=1 tcpopts=none payload=0x0000000000000000
tcp 8.8.8.8:5 > 1.1.1.1:99 A ack=1 doff=5 tcpopts=none payload=0x0000000000000000
tcp 8.8.8.8:5 > 1.1.1.1:99 A ack=2 doff=1 tcpopts=none payload=0x0000000000000001
tcp 8.8.8.8:5 > 1.1.1.1:99 A ack=2 doff=5 tcpopts=none payload=0x0000000000000001
tcp 8.8.8.8:5 > 1.1.1.1:99 A ack=2 tcpopts=01010101 payload=0x0000000000000001
`) {
			if !w.Send(f.Frame) {
				t.Fatal("a frame was not sent")
			}
			frames = append(frames, f.Frame)
		}
		sameCounters(t, w, text, s, x, frames)
		subject.Nft(t, "", "flush", "ruleset")
	}
}

// TestNftOwnSource sends packets with a forged source address of this host to a rule that rejects. The check must drop them without an answer.
func TestNftOwnSource(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	w := subject.NewWire(t)
	if out, err := exec.Command("ip", "addr", "add", "192.0.2.1/24", "dev", "eth0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := subject.Lower(t, "checks: {profile: off, own-source: on}\nrules: [{name: closed, port: tcp/25, then: reject}]")
	s.Insert(t, "local", "192.0.2.1/32")
	x, err := subject.ToNftables(s.Program, "")
	if err != nil {
		t.Fatal(err)
	}
	subject.Nft(t, x.Script, "-f", "-")
	var frames [][]byte
	for _, f := range subject.FramesOf(t, `
tcp 192.0.2.1:5 > 192.0.2.1:25 S
tcp 192.0.2.9:5 > 192.0.2.1:25 S
tcp 192.0.2.1:5 > 192.0.2.1:26 S
tcp 192.0.2.9:5 > 192.0.2.1:26 S
`) {
		if w.Send(f.Frame) {
			frames = append(frames, f.Frame)
		}
	}
	if len(frames) != 4 {
		t.Errorf("%d frames, want 4", len(frames))
	}
	sameCounters(t, w, "own-source", s, x, frames)
}

// atIngress returns the table of a program. It returns nil unless all rules are decided at ingress.
func atIngress(p *ir.Program) (*nftables.Ruleset, error) {
	pl, err := plan.Hoist(p, plan.TargetNftables)
	if err != nil || len(pl.At(plan.StageIngress)) < len(p.Rules) || pl.Default.Stage != plan.StageIngress {
		return nil, err
	}
	return nftables.Generate(pl, nftables.Options{Devices: []string{"eth0"}})
}

// elements returns the commands that fill the dynamic sets.
func elements(s *subject.Subject, x *nftables.Ruleset) (commands string) {
	for i, prefixes := range s.Members {
		var b netipx.IPSetBuilder
		for _, p := range prefixes {
			b.AddPrefix(p)
		}
		set, _ := b.IPSet()
		for _, p := range set.Prefixes() {
			names := x.Sets[i]
			name := map[bool]string{true: names.Nets4, false: names.Nets6}[p.Addr().Is4()]
			text := p.String()
			if p.IsSingleIP() {
				name = map[bool]string{true: names.V4, false: names.V6}[p.Addr().Is4()]
				text = p.Addr().String()
			}
			if name != "" {
				commands += fmt.Sprintf("add element inet %s %s { %s }\n", x.Table, name, text)
			}
		}
	}
	return commands
}

// told reports whether nftables must decide a frame with the right verdict and reason. ToNftables and Left document the exceptions.
func told(s *subject.Subject, x *nftables.Ruleset, frame []byte) bool {
	pkt := packet.Decode(frame)
	if pkt.Kind != packet.IP || len(frame) > 1514 || twoTags(frame) {
		return false
	}
	broken := []packet.Check{packet.Truncated, packet.TinyFragment, packet.ExtHeaders, packet.ExtOrder}
	for _, l := range x.Left {
		broken = append(broken, l.Check)
		if l.Check == packet.SYNNoMSS {
			broken = append(broken, packet.TCPHeader, packet.TCPOptions)
		}
	}
	for _, c := range broken {
		if pkt.Failed.Has(c) {
			return false
		}
	}
	if subject.AsksFor(s.Program, packet.MSS) && (pkt.Failed.Has(packet.TCPHeader) || subject.OddOptions(&pkt)) {
		return false
	}
	later := pkt.Value[packet.Fragment] == packet.FragmentLater
	return !(later && subject.IsExtension(pkt.Value[packet.Proto])) && !subject.Authenticated(frame)
}

func twoTags(frame []byte) bool {
	tag := func(at int) bool {
		return len(frame) >= at+2 && (frame[at] == 0x81 && frame[at+1] == 0 || frame[at] == 0x88 && frame[at+1] == 0xa8)
	}
	return tag(12) && tag(16)
}

// sameCounters compares the counters with the results of Eval for the sent frames. If they differ, it sends each frame again to find the first frame
// that is counted differently.
func sameCounters(t *testing.T, w *subject.Wire, what string, s *subject.Subject, x *nftables.Ruleset, frames [][]byte) {
	t.Helper()
	want := map[string]uint64{}
	for _, f := range frames {
		want[s.Counter(f, x.Checks, x.Rules, x.Default)]++
	}
	delete(want, "") // the default is not counted
	got := subject.Settled(t, x.Table, int(subject.Sum(want)))
	if maps.Equal(got, want) {
		return
	}
	t.Errorf("%s: counters %v, want %v", what, got, want)
	for _, f := range frames {
		before, name := got, s.Counter(f, x.Checks, x.Rules, x.Default)
		w.Send(f)
		got = subject.Settled(t, x.Table, int(subject.Sum(before))+1)
		if name != "" && got[name] != before[name]+1 || name == "" && !maps.Equal(got, before) {
			t.Fatalf("%x\n%+v\nwanted %s, counters %v\nbefore %v\n%s\n%s", f, packet.Decode(f), name, got, before, s.Program, x.Script)
		}
	}
}

// TestNftKeyForms compares counters for packets at the limits of the values in the rules of subject.KeyForms.
func TestNftKeyForms(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	w := routedWire(t)
	for _, form := range subject.KeyForms {
		s := subject.Lower(t, "rules:"+form.Rules+"\n")
		x, err := subject.ToNftables(s.Program, "")
		if err != nil {
			if form.Name == "text" { // nft cannot search for text
				continue
			}
			t.Fatal(err)
		}
		subject.Nft(t, x.Script, "-f", "-")
		var frames [][]byte
		for _, f := range subject.FramesOf(t, form.Packets) {
			if told(s, x, f.Frame) && w.Send(f.Frame) {
				frames = append(frames, f.Frame)
			}
		}
		sameCounters(t, w, form.Name, s, x, frames)
		subject.Nft(t, "", "delete", "table", "inet", x.Table)
	}
}
