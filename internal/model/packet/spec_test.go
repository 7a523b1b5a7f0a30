// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// canonical has lines in the form of String, and other notations of the same packets.
var canonical = []struct {
	line string
	same []string
}{
	{"tcp 198.51.100.7:1234 > 192.0.2.1:80 S", []string{
		"tcp 198.51.100.7:1234 > 192.0.2.1:80", "  tcp\t198.51.100.7:1234  >  192.0.2.1:80 S # the first packet"}},
	{"tcp 10.0.0.1:1 > 10.0.0.2:2 SA", []string{"tcp 10.0.0.1:1 > 10.0.0.2:2 S.", "tcp 10.0.0.1:1 > 10.0.0.2:2 AS"}},
	{"tcp 10.0.0.1:1 > 10.0.0.2:2 none", nil},
	{"tcp 10.0.0.1:1 > 10.0.0.2:2 FSRPAUEW", []string{"tcp 10.0.0.1:1 > 10.0.0.2:2 WEUAPRSF"}},
	{"tcp 10.0.0.1 > 10.0.0.2 frag=1480", []string{"tcp 10.0.0.1 > 10.0.0.2 frag=later"}},
	{"tcp 10.0.0.1:1 > 10.0.0.2:2 S seq=7 ack=4294967295 win=0 tcpopts=mss:1460,sack,ts,ws:7 doff=15", nil},
	{"tcp 10.0.0.1:1 > 10.0.0.2:2 S tcpopts=020405b4", nil},
	{"udp [2001:db8::1]:53 > [2001:db8::2]:53 len=128", []string{"udp [2001:db8:0::1]:53 > [2001:DB8::2]:53 len=128"}},
	{"udp [::ffff:192.0.2.1]:53 > [2001:db8::2]:53 udplen=7", nil},
	{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="a b # \"c\" |00|" ttl=3 dscp=46`, []string{
		`udp 10.0.0.1:1 > 10.0.0.2:2 payload="a b # \"c\" \x00" ttl=3 dscp=46`}},
	{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="GET |0d 0a 7c|x|c3|"`, []string{
		`udp 10.0.0.1:1 > 10.0.0.2:2 payload="GET |0d0A||7C|\x78|c3|"`, `udp 10.0.0.1:1 > 10.0.0.2:2 payload=0x474554200d0a7c78c3`}},
	{"udp 10.0.0.1:1 > 10.0.0.2:53 dns=ANY,example.com", []string{
		"udp 10.0.0.1:1 > 10.0.0.2:53 dns=any,example.com.", "udp 10.0.0.1:1 > 10.0.0.2:53 dns=255,example.com,class:1,opcode:0",
		"udp 10.0.0.1:1 > 10.0.0.2:53 dns=TYPE255,example.com,id:0"}},
	{"udp [::1]:1 > [::2]:53 dns=A,WwW.Example.com,id:65535,edns:1232,do,cookie:0102030405060708 ttl=3", []string{
		"udp [::1]:1 > [::2]:53 ttl=3 dns=A,WwW.Example.com,cookie:0x0102030405060708,do,id:65535"}},
	{"udp 10.0.0.1:1 > 10.0.0.2:53 dns=NS,.,edns:0,class:3,opcode:15,response", []string{
		"udp 10.0.0.1:1 > 10.0.0.2:53 dns=ns,.,response,opcode:15,class:3,edns:0"}},
	{`udp 10.0.0.1:1 > 10.0.0.2:53 dns=65280,a\046b\032\044\034\092\000\255:#.x`, []string{
		`udp 10.0.0.1:1 > 10.0.0.2:53 dns=65280,\097\046b\032\044\034\092\000\255:#.x`}},
	{"udp 10.0.0.1:1 > 10.0.0.2:2 payload=\"abc\"", []string{"udp 10.0.0.1:1 > 10.0.0.2:2 payload=0x616263"}},
	{"udp 10.0.0.1:1 > 10.0.0.2:2 vlan=10,20 frag=first", []string{
		"udp 10.0.0.1:1 > 10.0.0.2:2 frag=first vlan=10,20", "udp 10.0.0.1:1 > 10.0.0.2:2 mf vlan=10,20",
		"udp 10.0.0.1:1 > 10.0.0.2:2 mf frag=0 vlan=10,20"}},
	{"udp 10.0.0.1:1 > 10.0.0.2:2 frag=8 mf", nil},
	{"udp 10.0.0.1:1 > 10.0.0.2:2 frag=0", nil},
	{"icmp 10.0.0.1 > 192.0.2.1 type=8", []string{"icmp 10.0.0.1 > 192.0.2.1 echo-request"}},
	{"icmp 10.0.0.1 > 192.0.2.1 type=8 code=0", nil},
	{"icmp 10.0.0.1 > 192.0.2.1", nil},
	{"icmpv6 fe80::1 > ff02::1 type=129", []string{"icmpv6 [fe80::1] > [ff02::1] echo-reply"}},
	{"gre 10.0.0.1 > 10.0.0.2", []string{"proto=47 10.0.0.1 > 10.0.0.2"}},
	{"esp 2001:db8::1 > 2001:db8::2 ext=hbh,dst,rh0,rh2,frag,ah", nil},
	{"proto=6 10.0.0.1 > 10.0.0.2 ipopts=94040000 ihl=15 totlen=40 cut=30 csum=bad smac=03:00:00:00:00:01", nil},
	{"udp 10.0.0.1:1 > 10.0.0.2:2 csum=0", nil},
	{"tcp 10.0.0.1:1 > 10.0.0.2:2 A", []string{"tcp 10.0.0.1:1 > 10.0.0.2:2 . state=new", "tcp 10.0.0.1:1 > 10.0.0.2:2 state=new A"}},
	{"tcp 10.0.0.1:1 > 10.0.0.2:2 A ttl=3 state=established", []string{"tcp 10.0.0.1:1 > 10.0.0.2:2 state=established ttl=3 ."}},
	{"icmp 10.0.0.1 > 192.0.2.1 type=3 code=4 smac=02:00:00:00:00:09 state=related", nil},
	{"udp 2001:db8::1 > 2001:db8::2 frag=8 state=invalid", []string{"udp 2001:db8::1 > 2001:db8::2 state=invalid frag=8"}},
	{"gre 10.0.0.1 > 10.0.0.2 state=untracked", nil},
	{"udp 10.0.0.1:1 > 10.0.0.2:53 dns=A,a.example verified", []string{"udp 10.0.0.1:1 > 10.0.0.2:53 verified dns=A,a.example"}},
	{"arp", nil},
	{"arp vlan=3 smac=02:00:00:00:00:09", []string{"arp smac=02:00:00:00:00:09 vlan=3"}},
	{"arp 10.0.0.1 > 10.0.0.2", nil},
}

func TestSpecString(t *testing.T) {
	for _, test := range canonical {
		want := mustParse(t, test.line)
		if got := want.String(); got != test.line {
			t.Errorf("%s\nprints %s", test.line, got)
		}
		for _, line := range test.same {
			got := mustParse(t, line)
			if got.String() != test.line || !bytes.Equal(got.Frame(), want.Frame()) || !samePacket(got.Packet(), want.Packet()) {
				t.Errorf("%s\nis not %s\nbut    %s", line, test.line, got)
			}
		}
	}
}

// TestSpecRandom checks that String and Parse do not change random well-formed packets.
func TestSpecRandom(t *testing.T) {
	r := seeded(t)
	for range 5000 {
		want := RandomSpec(r, testHints)
		got := mustParse(t, want.String())
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Spec{}, dnsSpec{}), cmp.Comparer(addrEqual)); diff != "" {
			t.Fatalf("%s (-want +got)\n%s", want, diff)
		}
		if !bytes.Equal(want.Frame(), got.Frame()) {
			t.Fatalf("%s: another frame", want)
		}
	}
}

// TestPacketVerified checks that only the sender of a DNS query can be verified.
func TestPacketVerified(t *testing.T) {
	for message, want := range map[string]uint32{"dns=A,a.example": 1, "dns=A,a.example,response": 0, "dns=A,a.example,opcode:5": 0, "len=32": 0} {
		line := "udp 10.0.0.1:1 > 10.0.0.2:53 " + message
		p := mustParse(t, line+" verified").Packet()
		if p.Value[Verified] != want {
			t.Errorf("%s: verified is %d, want %d", line, p.Value[Verified], want)
		}
		p.Value[Verified] = 0
		if !samePacket(p, mustParse(t, line).Packet()) {
			t.Errorf("%s: the word changes more", line)
		}
	}
}

// TestPacketState checks that two properties of a packet do not depend on its frame: its state, and whether the sender of a DNS query is verified.
// All other properties depend only on the frame.
func TestPacketState(t *testing.T) {
	const line = "tcp 10.0.0.1:1 > 10.0.0.2:2 A"
	frame := mustParse(t, line).Frame()
	for _, test := range []struct {
		word string
		want uint32
	}{
		{"", StateNew},
		{"state=new", StateNew},
		{"state=established", StateEstablished},
		{"state=related", StateRelated},
		{"state=invalid", StateInvalid},
		{"state=untracked", StateUntracked},
	} {
		s := mustParse(t, line+" "+test.word)
		want := Decode(frame)
		want.Value[State] = test.want
		if !bytes.Equal(s.Frame(), frame) || !samePacket(s.Packet(), want) {
			t.Errorf("%q: frame %x, packet %+v\nwant %x, %+v", test.word, s.Frame(), s.Packet(), frame, want)
		}
	}
}

// TestFrame compares frames with bytes that were written by hand from the RFCs.
func TestFrame(t *testing.T) {
	ether := "020000000002 020000000001 "
	for _, test := range []struct{ line, frame string }{
		{"tcp 10.0.0.1:1234 > 10.0.0.2:80 S", ether + "0800" +
			"4500 002c 0001 4000 4006 26c9 0a000001 0a000002" +
			"04d2 0050 00000001 00000000 6002 ffff 7f01 0000 020405b4"},
		{"udp [2001:db8::1]:53 > [2001:db8::2]:5353 payload=\"abc\" dscp=46", ether + "86dd" +
			"6b800000 000b 1140 20010db8000000000000000000000001 20010db8000000000000000000000002" +
			"0035 14e9 000b cae2 616263"},
		{"arp 10.0.0.1 > 10.0.0.2 vlan=10", ether + "8100 000a 0806" +
			"0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002"},
		{"gre 10.0.0.1 > 10.0.0.2 frag=8 mf ttl=1 vlan=1,2 ipopts=94", ether + "88a8 0001 8100 0002 0800" +
			"4600 0018 0001 2001 012f f0b2 0a000001 0a000002 94000000"},
	} {
		want := strings.ReplaceAll(test.frame, " ", "")
		if got := hex.EncodeToString(mustParse(t, test.line).Frame()); got != want {
			t.Errorf("%s\n got %s\nwant %s", test.line, got, want)
		}
	}
}

// TestParseErrors tests one line for each mistake.
func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"", `column 1: protocol "": want tcp, udp, icmp, icmpv6, gre, esp, arp or proto=NUMBER`},
		{"tpc 10.0.0.1:1 > 10.0.0.2:2", `column 1: protocol "tpc": want tcp, udp,`},
		{"proto=256 10.0.0.1 > 10.0.0.2", `column 1: proto: "256": want a number from 0 to 255`},
		{"tcp", `column 5: source "": want ADDRESS:PORT, as 192.0.2.1:80 or [2001:db8::1]:80`},
		{"tcp 10.0.0.1:80", `column 17: "": want > between source and destination`},
		{"tcp 10.0.0.1:80 10.0.0.2:80", `column 17: "10.0.0.2:80": want > between`},
		{"tcp 10.0.0.1:80 > ", `column 19: destination "": want ADDRESS:PORT`},
		{"tcp 10.0.0.256:80 > 10.0.0.2:80", `column 5: source "10.0.0.256:80": want ADDRESS:PORT`},
		{"tcp 10.0.0.1:65536 > 10.0.0.2:80", `column 5: source "10.0.0.1:65536": want ADDRESS:PORT`},
		{"tcp 10.0.0.1 > 10.0.0.2", `column 25: tcp needs ports, as in 10.0.0.1:1234; only a later fragment`},
		{"tcp 2001:db8::1:80 > 2001:db8::2:80", `column 37: tcp needs ports, as in [2001:db8::1:80]:1234;`},
		{"tcp 10.0.0.1:1 > 10.0.0.2", `column 18: destination "10.0.0.2": want a port on both addresses or on none`},
		{"tcp 10.0.0.1 > 10.0.0.2 S frag=later", `column 25: flags S: want ports on the addresses as well`},
		{"icmp 10.0.0.1:1 > 10.0.0.2", `column 6: source "10.0.0.1:1": want no port, icmp has none`},
		{"icmp 10.0.0 > 10.0.0.2", `column 6: source "10.0.0": want an address, as 192.0.2.1 or 2001:db8::1`},
		{"icmp 2001:db8::1 > 2001:db8::2", `column 6: source 2001:db8::1: icmp needs IPv4 addresses`},
		{"icmpv6 10.0.0.1 > 10.0.0.2", `column 8: source 10.0.0.1: icmpv6 needs IPv6 addresses`},
		{"arp ::1 > ::2", `column 5: source ::1: arp needs IPv4 addresses`},
		{"gre 10.0.0.1 > 2001:db8::2", `column 16: destination 2001:db8::2: want an address of the same family as the source 10.0.0.1`},
		{"gre fe80::1%eth0 > fe80::2", `column 5: source "fe80::1%eth0": want an address without zone, packets carry none`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 X", `column 29: "X": want flags of FSRPAUEW. or none, len=,`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 S A", `column 31: flags: given twice`},
		{"icmp 10.0.0.1 > 10.0.0.2 echo", `column 26: "echo": want echo-request, echo-reply, type=, code=,`},
		{"icmp 10.0.0.1 > 10.0.0.2 echo-reply type=3", `column 37: type: given twice`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 tll=3", `column 29: "tll=3": want len=, payload=, dns=, ttl=, dscp=, vlan=, frag=, mf, ipopts=, udplen=,`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 ttl=3 ttl=4", `column 35: ttl: given twice`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 ttl=256", `column 29: ttl: "256": want a number from 0 to 255`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 ttl", `column 29: ttl: "": want a number from 0 to 255`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dscp=64", `column 29: dscp: "64": want a number from 0 to 63`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 win=1", `column 29: win: only a tcp packet has it`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 udplen=9", `column 29: udplen: only a udp packet has it`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 type=8", `column 29: type: only an icmp or icmpv6 packet has it`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 ext=hbh", `column 29: ext: only an IPv6 packet has it`},
		{"tcp [::1]:1 > [::2]:2 ihl=5", `column 23: ihl: only an IPv4 packet has it`},
		{"arp ttl=3", `column 5: ttl: only an IP packet has it`},
		{"tcp [::1]:1 > [::2]:2 ext=hbh,xyz", `column 23: ext: "xyz": want frag,hbh,dst,rh0,rh2,ah, in the order of the headers`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 vlan=4096", `column 29: vlan: "4096": want a number from 0 to 4095`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 vlan=1,2,3,4", `column 29: vlan: "1,2,3,4": want at most 3 tags, the outermost first`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 frag=7", `column 29: frag: "7": want first, later, or an offset in bytes, a multiple of 8 up to 65528`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 mf=1", `column 29: mf: want no value`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 payload=abc", `column 29: payload: "abc": want text in double quotes, or hex digits after 0x`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 payload=0xabc", `column 29: payload: "abc": want pairs of hex digits`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="a|0d"`, `column 29: payload: "|0d": the closing | is missing; a | itself is written |7c|`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="a|0d 0|"`, `column 29: payload: "|0d 0|": want pairs of hex digits, as |0d 0a|`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="||"`, `column 29: payload: "||": want pairs of hex digits, as |0d 0a|`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x payload="a"`, `column 37: payload: want payload or dns, not both`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="a" dns=A,x`, `column 41: dns: want payload or dns, not both`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=A", `column 29: dns: "A": want TYPE,NAME, as ANY,example.com; the root's name is a dot`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns", `column 29: dns: "": want TYPE,NAME`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=B,x", `column 29: dns: "B": want a type of DNS records, as A, TXT or ANY, or its number from 0 to 65535`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=65536,x", `column 29: dns: "65536": want a type of DNS records`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x..y", `column 29: dns: name "x..y": label of 0 bytes: want 1 to 63`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=A," + strings.Repeat("a", 64), `label of 64 bytes: want 1 to 63`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=A," + strings.Repeat("a.", 128), `column 29: dns: name of 257 bytes: want at most 255, with`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x\256`, `column 29: dns: name "x\\256": want three decimal digits up to 255 behind \`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x\25`, `want three decimal digits up to 255 behind \`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x,dO", `column 29: dns: "dO": want id:NUMBER, edns:SIZE, do, cookie:HEX, class:NUMBER, opcode:NUMBER, response`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x,edns", `column 29: dns: "": want a number from 0 to 65535`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x,opcode:16", `column 29: dns: "16": want a number from 0 to 15`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x,cookie:0", `column 29: dns: "0": want pairs of hex digits`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 dns=A,x", `column 29: dns: only a udp packet has it`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="a b`, `column 29: payload="a b: the closing " is missing`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="a\q"`, `column 29: payload: "a\q": want text in double quotes, with escapes as in Go`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 ipopts=zz", `column 29: ipopts: "zz": want pairs of hex digits`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 ipopts=" + strings.Repeat("01", 41), `column 29: ipopts: 41 bytes: want at most 40`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 tcpopts=mms:1", `column 29: tcpopts: "mms:1": want mss:NUMBER, sack, ts, ws:NUMBER,`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 tcpopts=mss:x", `column 29: tcpopts: "x": want a number from 0 to 65535`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 tcpopts=ts,ts,ts,ts,ts", `column 29: tcpopts: 50 bytes: want at most 40`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 csum=1", `column 29: csum: "1": want bad (all are wrong) or 0 (no L4 checksum)`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 smac=1", `column 29: smac: "1": want an Ethernet address, as 02:00:00:00:00:01`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 state=est", `column 29: state: "est": want new, established, related, invalid, untracked`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 state=", `column 29: state: "": want new, established,`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 state", `column 29: state: "": want new, established,`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 state=new state=invalid", `column 39: state: given twice`},
		{"arp state=untracked", `column 5: state: only an IP packet has it`},
		{"tcp 10.0.0.1:1 > 10.0.0.2:2 S len=43", `column 31: len=43: the headers and the payload already take 44 bytes`},
		{"udp [::1]:1 > [::2]:2 totlen=39", `column 23: totlen=39: an IPv6 header cannot say less than 40 bytes`},
		{"udp 10.0.0.1:1 > 10.0.0.2:2 payload=0x" + strings.Repeat("00", 65508), `payload: the packet has 65536 bytes, an IP packet at most 65535`},
		{`udp 10.0.0.1:1 > 10.0.0.2:2 payload="öö" x`, `column 42: "x": want len=`},
	} {
		s, err := Parse(test.line)
		if err == nil {
			t.Errorf("%s\nreads as %s", test.line, s)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.99s\n got %s\nwant %s", test.line, err, test.want)
		}
	}
}
