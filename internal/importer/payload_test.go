// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestBytes has rules that test bytes of packets, with u32, string and nft's @-expressions. For each rule, the test has the policy's rule, or the
// reason why there is none.
func TestBytes(t *testing.T) {
	const wholePacket = "-m string looks in the whole packet, and the policy in the first"
	const noOptions = "it reads no packets with IPv4 options"
	for _, tt := range []struct{ name, rule, want, lost string }{
		{"u32, UDP", `-p udp -m udp --dport 53 -m u32 --u32 "0x0>>0x16&0x3c@0x8=0xffffffff"`,
			`{proto: udp, port: 53, family: ipv4, payload: {at: {offset: 0, bytes: "|ff ff ff ff|"}}, then: drop}`, ""},
		{"u32, two bytes", `-p udp -m udp --dport 53 -m u32 --u32 "0>>22&0x3C@8>>16=0x4142"`,
			`{proto: udp, port: 53, family: ipv4, payload: {at: {offset: 0, bytes: "AB|00 00|", mask: "|ff ff 00 00|"}}, then: drop}`, ""},
		{"u32, payload of TCP", `-p tcp -m tcp --dport 80 -m u32 --u32 "0>>22&0x3C@12>>26&0x3C@0=0x47455420"`,
			`{proto: tcp, port: 80, family: ipv4, payload: {at: {offset: 0, bytes: "GET "}}, then: drop}`, ""},
		{"u32, header of TCP", `-p tcp -m tcp --dport 80 -m u32 --u32 "0>>22&0x3C@4&0xFF=7"`,
			`{proto: tcp, port: 80, family: ipv4, payload: {at: {offset: 7, bytes: "|07|", from: header}}, then: drop}`, ""},
		{"u32, negated", `-p udp -m udp --dport 53 -m u32 ! --u32 "0>>22&0x3C@8=1"`,
			`{proto: udp, port: 53, family: ipv4, not: {payload: {at: {offset: 0, bytes: "|00 00 00 01|"}}}, then: drop}`, ""},
		{"u32, fields", `-p tcp -m u32 --u32 "0&0xFFFF=0:100&&8>>24=64&&6&0xFF=6"`, `{proto: tcp, family: ipv4, length: 0-100, ttl: 64, then: drop}`, ""},
		{"u32, an address", `-m u32 --u32 "12&0xFFFFFF00=0xC0000200"`, ``, "bits of the IP header at 12"},
		{"u32, a prefix", `-m u32 --u32 "12>>8=0xC00002"`, `{from: 192.0.2.0/24, then: drop}`, ""},
		{"u32, any protocol", `-m u32 --u32 "0>>22&0x3C@8=1"`, `{family: ipv4, payload: {at: {offset: 8, bytes: "|00 00 00 01|", from: header}}, then: drop}`,
			"the policy reads the bytes of TCP, UDP and ICMP alone"},
		{"u32, GRE", `-p gre -m u32 --u32 "0>>22&0x3C@8=1"`, ``, "bytes of a protocol other than TCP, UDP and ICMP"},
		{"u32, a range", `-p udp -m udp --dport 53 -m u32 --u32 "0>>22&0x3C@8=1:9"`, ``, "a range of values of bytes"},
		{"u32, far", `-p udp -m udp --dport 53 -m u32 --u32 "0>>22&0x3C@2000=1"`, ``, "bytes that the policy cannot name together"},
		{"string of Floodwall", `-p udp -m udp --dport 53 -m u32 --u32 "0>>24&0xF=5" -m string --hex-string "|6576696c|" --algo kmp --from 28 --to 284 --icase`,
			`{proto: udp, port: 53, family: ipv4, payload: {contains: "evil", nocase: true, within: 256}, then: drop}`, noOptions},
		{"string", `-p udp -m udp --dport 5060 -m string --string "friendly-scanner" --algo bm --to 65535`,
			`{proto: udp, port: 5060, family: ipv4, payload: {contains: "friendly-scanner", within: 1024}, then: drop}`, wholePacket},
		{"string, bytes", `-p udp -m udp --dport 53 -m string --hex-string "a|00 7c|\"" --algo bm --to 500`,
			`{proto: udp, port: 53, family: ipv4, payload: {contains: "a|00 7c 22|", within: 472}, then: drop}`, wholePacket},
		{"string, negated", `-p udp -m udp --dport 53 -m string ! --string x --algo bm`,
			`{proto: udp, port: 53, family: ipv4, not: {payload: {contains: "x", within: 1024}}, then: drop}`, wholePacket},
		{"two strings", `-p udp -m udp --dport 53 -m string --string x --algo bm -m string --string y --algo bm`, ``, "bytes that the policy cannot name together"},
		{"string, neither", `-p udp -m udp --dport 53 -m string ! --string x --algo bm -m string ! --string y --algo bm`,
			`{proto: udp, port: 53, family: ipv4, not: {payload: {contains: ["x", "y"], within: 1024}}, then: drop}`, wholePacket},
		{"string, behind", `-p udp -m udp --dport 53 -m string --string x --algo bm --from 100 --to 200`, ``, "which begins to look behind the start of the payload"},
		{"string, long", `-p udp -m string --string ` + strings.Repeat("x", 65) + ` --algo bm`, ``, "up to 64 bytes"},
		{"nft, UDP", `nft udp dport 53 @th,64,64 0xfffffffffffffffe`, `{proto: udp, port: 53, payload: {at: {offset: 0, bytes: "|ff ff ff ff ff ff ff fe|"}}, then: drop}`, ""},
		{"nft, 64 bits", `nft udp dport 53 @th,64,64 0x0123456789abcdef`, `{proto: udp, port: 53, payload: {at: {offset: 0, bytes: "|01|#Eg|89 ab cd ef|"}}, then: drop}`, ""},
		{"nft, 128 bits", `nft meta l4proto udp @th,64,128 0x2020202020202020202020202020202`,
			`{proto: udp, payload: {at: {offset: 0, bytes: "|02 02 02 02 02 02 02 02 02 02 02 02 02 02 02 02|"}}, then: drop}`, ""},
		{"nft, a mask", `nft meta l4proto tcp @ih,0,32 & 0xffff0000 == 0x47450000`, `{proto: tcp, payload: {at: {offset: 0, bytes: "GE|00 00|", mask: "|ff ff 00 00|"}}, then: drop}`, ""},
		{"nft, a set", `nft meta l4proto udp @th,64,16 { 0x4141, 0x4242 }`, `{proto: udp, payload: {at: {offset: 0, bytes: "AA"}}, then: drop}
{proto: udp, payload: {at: {offset: 0, bytes: "BB"}}, then: drop}`, ""},
		{"nft, another", `nft meta l4proto udp @th,64,16 != 0x4141`, `{proto: udp, not: {payload: {at: {offset: 0, bytes: "AA"}}}, then: drop}`, "packets that end before these bytes"},
		{"nft, some bits", `nft meta l4proto udp @th,68,4 0x1`, `{proto: udp, payload: {at: {offset: 0, bytes: "|01|", mask: "|0f|"}}, then: drop}`, ""},
		{"nft, a header of both families", `nft @nh,64,8 0x5`, ``, "bits of the IP header at @nh,64,8"},
		{"nft, a header", `nft meta nfproto ipv4 @nh,64,8 0x5`, `{family: ipv4, ttl: 5, then: drop}`, ""},
		{"nft, a range", `nft meta l4proto udp @th,64,16 0x1-0x5`, ``, "@th,64,16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			format, text := importer.Iptables, "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT "+tt.rule+" -j DROP\n-A INPUT -p tcp -m tcp --dport 7 -j DROP\nCOMMIT\n"
			last := "{proto: tcp, port: 7, family: ipv4, then: drop}"
			if rule, ok := strings.CutPrefix(tt.rule, "nft "); ok {
				format, text = importer.Nft, "table inet f {\n\tchain i {\n\t\ttype filter hook input priority 0;\n\t\t"+rule+" drop\n\t\ttcp dport 7 drop\n\t}\n}\n"
				last = "{proto: tcp, port: 7, then: drop}"
			}
			r := imported(t, format, importer.Source{Name: "f", Data: []byte(text)})
			want := strings.TrimPrefix(tt.want+"\n"+last, "\n")
			if got := strings.Join(policyRules(r), "\n"); strings.TrimSpace(got) != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			says(t, "lost", r.Lost, tt.lost)
			if r.Unfit != "" {
				t.Errorf("check refuses it: %s\n%s", r.Unfit, r.Policy)
			}
		})
	}
}

// TestBytesBehindState has a search for a text in packets of a certain connection state. No policy can express this rule. The imported policy must
// pass `check`.
func TestBytesBehindState(t *testing.T) {
	text := "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n" +
		"-A INPUT -p udp -m udp --dport 53 -m string --string x --algo bm -j DROP\n" +
		"-A INPUT -p udp -m udp --dport 53 -m u32 --u32 \"0>>22&0x3C@8=1\" -j DROP\n-A INPUT -p udp -m udp --dport 53 -j ACCEPT\nCOMMIT\n"
	r := imported(t, importer.Iptables, importer.Source{Name: "f", Data: []byte(text)})
	says(t, "lost", r.Lost, "bytes of the packet, which the policy reads before what other rules ask for")
	if r.Unfit != "" || !strings.Contains(r.Policy, `payload: {at: {offset: 0, bytes: "|00 00 00 01|"}}`) {
		t.Errorf("unfit %q\n%s", r.Unfit, r.Policy)
	}
}

// exported is a policy whose rules test bytes in all ways that both netfilter targets support.
const exported = `devices: [ens3]
checks: off
rules:
  - {name: udp, proto: udp, port: 5000-5999, payload: {at: {offset: 0, bytes: "|ff ff ff ff|TSource"}}, then: drop}
  - {name: masked, proto: udp, port: 6000, payload: {at: {offset: 1, bytes: "|40 00 0f|", mask: "|f0 00 ff|"}}, then: drop}
  - {name: places, proto: tcp, port: 80, payload: {at: [{offset: 0, bytes: "GET "}, {offset: 12, bytes: "|50|", mask: "|f0|", from: header}]}, then: drop}
  - {name: other, proto: udp, port: 7000, not: {payload: {at: {offset: 0, bytes: "|41 42 43 44|"}}}, then: drop}
`

// TestExportedBytes imports the rules that Floodwall itself generates for a policy, in the form in which the tools print them. It
// compares the verdicts of the two policies. It leaves out packets with IPv4 options or IPv6 extension headers, because iptables cannot
// read their bytes.
func TestExportedBytes(t *testing.T) {
	search := exported + "  - {name: search, proto: udp, port: 53, payload: {contains: [evil, \"|00|name\"], nocase: true, within: 200}, then: drop}\n"
	for target, text := range map[plan.Target]string{plan.TargetIptables: search, plan.TargetNftables: exported} {
		t.Run(string(target), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			of := parsed(t, text)
			optimized, _ := compile.Optimize(of)
			out, err := compile.Compile(optimized, target, []string{"ens3"})
			if err != nil {
				t.Fatal(err)
			}
			a := &txtar.Archive{Files: []txtar.File{{Name: "nft", Data: []byte(out.Script)}}}
			if target == plan.TargetIptables {
				four, six, _ := strings.Cut(out.Script, "# for: ip6tables-restore")
				a.Files = []txtar.File{{Name: "iptables-save", Data: []byte(four)}, {Name: "ip6tables-save", Data: []byte("# for: ip6tables-restore" + six)}}
			}
			c := &testCase{name: string(target), device: []string{"ens3"}, archive: a}
			sources, format := c.saved(t)
			r := c.imports(t, sources, format)
			back := lower(t, r)
			dropped := 0
			rnd := testutil.Random(t)
			for _, s := range bytesProbes(t, rnd.IntN) {
				p := s.Packet()
				want, _ := of.Eval(&p, ir.World{})
				got, _ := back.Eval(&p, ir.World{})
				if want == ir.Drop {
					dropped++
				}
				if got != want {
					t.Errorf("%s: %s, want %s", s, got, want)
				}
			}
			if t.Failed() || dropped < 100 {
				t.Errorf("%d dropped\n%s\n%v", dropped, r.Policy, r.Lost)
			}
		})
	}
}

// bytesProbes returns packets to the ports of exported. Their payload matches the tests of its rules, or nearly does.
func bytesProbes(t *testing.T, draw func(int) int) (list []packet.Spec) {
	texts := []string{"\xff\xff\xff\xffTSource Engine Query", "\xff\xff\xff\xffTSourc", "\xff\xff\xff\xfeTSource Engine", "a\x4fz\x0f rest", "a\x3fz\x0f rest", "GET / HTTP/1.1",
		"PUT / HTTP/1.1", "ABCD", "ABCDE", "ABC", "some evil thing", "some EvIl thing", "x\x00NAMEd", strings.Repeat("y", 194) + "evil", strings.Repeat("y", 197) + "evil", ""}
	for range 2000 {
		text := texts[draw(len(texts))]
		ends := [][2]string{{"198.51.100.7:9", "192.0.2.1"}, {"[2001:db8:7::7]:9", "[2001:db8::1]"}}[draw(2)]
		line := fmt.Sprintf("udp %s > %s:%d", ends[0], ends[1], []int{5000, 5999, 6000, 7000, 53}[draw(5)])
		if draw(3) == 0 {
			line = fmt.Sprintf("tcp %s > %s:80", ends[0], ends[1])
		}
		if text != "" {
			line += fmt.Sprintf(" payload=0x%x", text)
		}
		s, err := packet.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

func parsed(t *testing.T, text string) *ir.Program {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	program, _, err := compile.Lower(p)
	if err != nil {
		t.Fatal(err)
	}
	return program
}
