// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// Addresses that fail no check.
const (
	v4 = "8.8.8.8 > 1.1.1.1"
	v6 = "2606:4700::1 > 2606:4700::2"
	t4 = "tcp 8.8.8.8:40000 > 1.1.1.1:80"
	t6 = "tcp [2606:4700::1]:40000 > [2606:4700::2]:80"
	u4 = "udp 8.8.8.8:40000 > 1.1.1.1:53"
	u6 = "udp [2606:4700::1]:40000 > [2606:4700::2]:53"
)

// decodeTests have packets with the relevant fields, and all checks that they fail.
var decodeTests = []struct{ line, fields, fails string }{
	// Fields.
	{t4 + " S", "proto=6 port=80 sport=40000 family=ipv4 flags=S icmp=none length=44 ttl=64 dscp=0 fragment=none vlan=none", ""},
	{t6 + " S", "proto=6 port=80 sport=40000 family=ipv6 flags=S icmp=none length=64 ttl=64 dscp=0 fragment=none vlan=none", ""},
	{u4, "proto=17 port=udp/53 sport=udp/40000 flags=none icmp=none length=28", ""},
	{u6, "proto=17 port=udp/53 sport=udp/40000 flags=none icmp=none length=48", ""},
	{u4 + " len=128 ttl=3 dscp=46", "length=128 ttl=3 dscp=46", ""},
	{u6 + " len=128 ttl=3 dscp=46", "length=128 ttl=3 dscp=46", ""},
	{"icmp " + v4 + " type=3 code=4", "proto=1 icmp=3/4 port=none sport=none", ""},
	{"icmp " + v4 + " echo-reply", "icmp=0/0", ""},
	{"icmpv6 " + v6 + " echo-request", "proto=58 icmp=v6/128/0 port=none", ""},
	{"gre " + v4, "proto=47 port=none icmp=none flags=none length=20", ""},
	{"proto=6 2606:4700::1 > 2606:4700::2 payload=0x9c400050000000010000000050020001000000000000", "port=80 flags=S", "syn-data syn-no-mss"},
	{"proto=58 " + v4 + " payload=0x8000000000000000", "proto=58 icmp=none", ""},
	{"proto=1 " + v6 + " payload=0x0800000000000000", "proto=1 icmp=none", ""},

	// VLAN tags: the outermost counts.
	{u4 + " vlan=10", "vlan=10 port=udp/53", ""},
	{u4 + " vlan=0", "vlan=0 port=udp/53", ""},
	{t6 + " S vlan=4095,20", "vlan=4095 port=80", ""},
	{u4 + " smac=01:00:5e:00:00:01", "port=udp/53", "source-mac"},

	// IPv4 header.
	{u4 + " ttl=0", "ttl=0 port=udp/53", "ttl-zero"},
	{u4 + " ipopts=94040000", "length=32 port=udp/53", ""},
	{u4 + " ipopts=01010100ff", "port=udp/53", ""},
	{u4 + " ipopts=830704c0000201", "port=udp/53", "source-route"},
	{u4 + " ipopts=890304", "port=udp/53", "source-route"},
	{u4 + " ipopts=44040500", "port=udp/53", "ip-options"},
	{u4 + " ipopts=94040000440405008303040000", "port=udp/53", "source-route ip-options"},
	{u4 + " ipopts=83010000", "port=udp/53", "ip-options"},
	{u4 + " ipopts=01010183", "port=udp/53", "ip-options"},
	{u4 + " ipopts=94050000", "port=udp/53", "ip-options"},
	{u4 + " csum=bad", "port=udp/53", "ip-checksum"},
	{u4 + " totlen=29", "length=29 port=udp/53", "truncated"},
	{u4 + " totlen=27", "length=27 port=none", "truncated"},
	{u4 + " totlen=28 payload=\"trailer\"", "length=28 port=udp/53", "udp-length"},

	// IPv4 fragments.
	{u4 + " frag=first", "fragment=first port=udp/53", ""},
	{u4 + " frag=first udplen=3000", "fragment=first port=udp/53", ""},
	{u4 + " frag=first udplen=7", "fragment=first port=udp/53", "udp-length"},
	{u4 + " frag=later", "fragment=later port=none sport=none proto=17", ""},
	{t4 + " S frag=later mf", "fragment=later port=none flags=none proto=6", ""},
	{"tcp " + v4 + " frag=8", "fragment=later", "tiny-fragment"},
	{"tcp " + v4 + " frag=16", "fragment=later", "tiny-fragment"},
	{"tcp " + v4 + " frag=24", "fragment=later", ""},
	{"udp " + v4 + " frag=8", "fragment=later", ""},
	{"udp " + v4 + " frag=65512 len=23", "fragment=later", ""},
	{"udp " + v4 + " frag=65512 len=24", "fragment=later", "fragment-overflow"},
	{"proto=6 " + v4 + " frag=first len=39", "fragment=first port=none", "tiny-fragment"},
	{"proto=17 " + v4 + " frag=first len=27", "fragment=first port=none", "tiny-fragment"},
	{"proto=1 " + v4 + " frag=first len=27", "fragment=first icmp=none", "tiny-fragment"},
	{t4 + " S frag=first doff=7", "fragment=first port=80", "tiny-fragment"},

	// IPv6 header and extension headers.
	{u6 + " ttl=0", "ttl=0", "ttl-zero"},
	{u6 + " totlen=49", "length=49 port=udp/53", "truncated"},
	{u6 + " totlen=47", "length=47 port=none", "truncated"},
	{"proto=59 " + v6, "proto=59 port=none length=40", ""},
	{t6 + " S ext=hbh,dst,rh2,dst", "proto=6 port=80", ""},
	{t6 + " S ext=hbh,dst,rh2,ah,dst", "proto=51 port=none flags=none", ""},
	{t6 + " S ext=hbh,dst,dst,dst,dst,dst", "proto=6 port=80", ""},
	{t6 + " S ext=dst,dst,dst,dst,dst,dst,dst", "proto=60 port=none flags=none", "ext-headers"},
	{t6 + " S ext=dst,hbh", "port=80", "ext-order"},
	{t6 + " S ext=hbh,hbh", "port=80", "ext-order"},
	{t6 + " S ext=rh0", "port=80", "source-route"},
	{t6 + " S ext=dst totlen=47", "proto=60 port=none", "truncated"},
	{t6 + " S ext=dst totlen=44", "proto=60 port=none", "truncated"},
	{"proto=60 " + v6 + " payload=0x3b01000000000000", "proto=60", "truncated"},
	{"proto=51 " + v6 + " payload=0x3b00000000000000", "proto=51", ""},
	{"proto=60 " + v6 + " payload=0x3b00000000000000", "proto=59", ""},

	// IPv6 fragments.
	{t6 + " S ext=frag", "fragment=none port=80", "atomic-fragment"},
	{t6 + " S frag=first", "fragment=first port=80", ""},
	{t6 + " S frag=later", "fragment=later port=none proto=6", ""},
	{t6 + " S frag=16", "fragment=later port=none proto=6", "tiny-fragment"},
	{u6 + " frag=8 ext=frag,dst", "fragment=later proto=60 port=none", ""},
	{t6 + " S frag=first ext=frag,frag", "fragment=first port=80", "ext-order"},
	{"udp " + v6 + " frag=65528 len=55", "fragment=later", ""},
	{"udp " + v6 + " frag=65528 len=56", "fragment=later", "fragment-overflow"},
	{"udp " + v6 + " frag=65528 len=50 totlen=56", "fragment=later", "truncated fragment-overflow"},
	{"proto=6 " + v6 + " frag=first len=67", "fragment=first port=none", "tiny-fragment"},
	{"proto=60 " + v6 + " frag=first", "fragment=first proto=60", "tiny-fragment"},
	{"proto=60 " + v6 + " frag=first payload=0x0601000000000000", "fragment=first proto=60", "tiny-fragment"},
	{"proto=44 " + v6 + " frag=first payload=0x0600000000000000", "fragment=none proto=6", "truncated atomic-fragment ext-order"},

	// Addresses.
	{"udp 8.8.8.8:40000 > 8.8.8.8:53", "", "land"},
	{"udp [2606::1]:40000 > [2606::1]:53", "", "land"},
	{"udp 224.0.0.5:40000 > 8.8.8.8:53", "", "source-address bogon-source"},
	{"udp 255.255.255.255:40000 > 8.8.8.8:53", "", "source-address bogon-source"},
	{"udp 127.3.2.1:40000 > 8.8.8.8:53", "", "source-address bogon-source"},
	{"udp [ff02::1]:40000 > [2606::1]:53", "", "source-address bogon-source"},
	{"udp [::1]:40000 > [2606::1]:53", "", "source-address bogon-source"},
	{"udp [64:ff9b::808:808]:40000 > [2606::1]:53", "", ""},
	{"udp [::ffff:8.8.8.8]:40000 > [2606::1]:53", "", "bogon-source"},
	{"udp 172.31.255.255:40000 > 8.8.8.8:53", "", "bogon-source"},
	{"udp 172.32.0.0:40000 > 8.8.8.8:53", "", ""},
	{"udp 0.0.0.0:68 > 255.255.255.255:67", "", ""},
	{"udp 0.0.0.1:68 > 255.255.255.255:67", "", "bogon-source"},
	{"tcp 0.0.0.0:40000 > 1.1.1.1:67 S", "", "bogon-source"},
	{"icmpv6 :: > ff02::1 type=135", "icmp=v6/135/0 ttl=255", ""},
	{"icmpv6 fe80::1 > ff02::1 type=135", "", ""},
	{"udp [fe80::1]:546 > [ff02::1:2]:547", "", ""},
	{"icmpv6 fd00::1 > ff02::1 type=135", "", "bogon-source"},
	{"proto=146 " + v4, "", ""},
	{"proto=148 " + v4, "", "ip-protocol"},
	{"proto=252 " + v6, "", "ip-protocol"},
	{"proto=253 " + v4, "", ""},
	{"proto=255 " + v4, "", "ip-protocol"},

	// TCP.
	{"proto=6 " + v4 + " len=39", "port=none flags=none", "truncated"},
	{t4 + " S doff=4", "port=80", "tcp-header syn-data"},
	{t4 + " S doff=7", "port=80", "tcp-header"},
	{t4 + " .", "flags=A", ""},
	{t4 + " FPUA", "flags=FPAU", ""},
	{t4 + " SAEW", "flags=SAEW", ""},
	{t4 + " R", "flags=R", ""},
	{t4 + " none", "flags=none", "tcp-flags"},
	{t4 + " SF", "flags=FS", "tcp-flags"},
	{t4 + " F", "flags=F", "tcp-flags"},
	{t4 + " P", "flags=P", "tcp-flags"},
	{t4 + " FPU", "flags=FPU", "tcp-flags"},
	{t4 + " RU", "flags=RU", "tcp-flags"},
	{"tcp 8.8.8.8:0 > 1.1.1.1:80 .", "sport=0", "port-zero"},
	{"tcp 8.8.8.8:4000 > 1.1.1.1:0 .", "port=0", "port-zero"},
	{t4 + " . ack=0", "", "ack-zero"},
	{t4 + " R ack=0", "", ""},
	{t4 + " S payload=\"x\"", "", "syn-data"},
	{t4 + " S. payload=\"x\"", "", ""},
	{"tcp 8.8.8.8:1023 > 1.1.1.1:80 S", "", "syn-low-port"},
	{"tcp 8.8.8.8:1024 > 1.1.1.1:80 S", "", ""},
	{t4 + " S tcpopts=none", "", "syn-no-mss"},
	{t4 + " S tcpopts=ts,nop,sack,ws:7", "", "syn-no-mss"},
	{t4 + " S tcpopts=eol,mss:1460", "", "syn-no-mss"},
	{t4 + " S tcpopts=ts,mss:1460,nop", "", ""},
	{t4 + " S tcpopts=0202", "", ""},
	{t4 + " S tcpopts=02040100030100", "", "tcp-options"},
	{t4 + " S tcpopts=01010102", "", "tcp-options syn-no-mss"},
	{t4 + " S tcpopts=02050100", "", "tcp-options syn-no-mss"},
	{t4 + " . tcpopts=02050100", "", ""},
	{t4 + " S win=0", "", "syn-window-zero"},
	{t4 + " . win=0", "", ""},

	// UDP.
	{u4 + " udplen=7", "port=udp/53", "udp-length"},
	{u4 + " udplen=9", "port=udp/53", "udp-length"},
	{u4 + " payload=\"x\" udplen=8", "port=udp/53", ""},
	{"udp 8.8.8.8:4000 > 1.1.1.1:0", "port=udp/0", "port-zero"},
	{"udp 8.8.8.8:0 > 1.1.1.1:53", "sport=udp/0", "udp-source-zero"},
	{"udp 8.8.8.8:53 > 1.1.1.1:4000", "", ""},
	{"udp 8.8.8.8:123 > 1.1.1.1:4000", "", ""},
	{"udp 8.8.8.8:11211 > 1.1.1.1:4000", "", "reflector-source"},
	{u4 + " csum=0", "", ""},
	{u6 + " csum=0", "", "udp6-checksum"},
	{u6 + " csum=0 frag=first", "", "udp6-checksum"},

	// ICMP.
	{"proto=1 " + v4 + " len=27", "icmp=none", "truncated"},
	{"icmp " + v4 + " type=5 code=1", "icmp=5/1", "icmp-type"},
	{"icmp " + v4 + " type=12", "", ""},
	{"icmpv6 " + v6 + " type=13", "", ""},
	{"icmp " + v4 + " len=1024", "", ""},
	{"icmp " + v4 + " len=1025", "", "icmp-large"},
	{"icmp " + v4 + " type=0 len=1025", "", ""},
	{"icmpv6 " + v6 + " len=1025", "", "icmp-large"},
	{"icmpv6 " + v6 + " type=134 ttl=254", "", "nd-hop-limit"},
	{"icmpv6 " + v6 + " type=133 ttl=254", "", "nd-hop-limit"},
	{"icmpv6 " + v6 + " type=137 ttl=0", "", "ttl-zero nd-hop-limit"},
	{"icmpv6 " + v6 + " type=132 ttl=254", "", ""},
	{"icmpv6 " + v6 + " type=138 ttl=254", "", ""},
}

func TestDecode(t *testing.T) {
	seen := CheckSet(0).With(OwnSource).With(Truncated).With(IPHeader).With(VLANDepth)
	for _, test := range decodeTests {
		t.Run(test.line, func(t *testing.T) {
			s := mustParse(t, test.line)
			p := Decode(s.Frame())
			if p.Kind != IP || p.Src != s.src || p.Dst != s.dst {
				t.Errorf("kind %d, addresses %s > %s", p.Kind, p.Src, p.Dst)
			}
			checkFields(t, p, test.fields)
			if got := failures(p.Failed); got != test.fails {
				t.Errorf("fails %q, want %q", got, test.fails)
			}
			seen |= p.Failed
		})
	}
	if missing := (CheckSet(1)<<NumChecks - 1) &^ seen; missing != 0 {
		t.Errorf("no packet fails %s", failures(missing))
	}
}

// TestDecodeNoIP tests frames without readable addresses.
func TestDecodeNoIP(t *testing.T) {
	ether := "020000000002 020000000001 "
	ipv4Rest := "0000 0000 4011 0000 08080808 01010101"
	for _, test := range []struct {
		name, frame string
		kind        Kind
		fails       string
	}{
		{"empty", "", NotIP, "truncated"},
		{"13 bytes", "020000000002 030000000001 08", NotIP, "truncated"},
		{"ARP", ether + "0806 0001", NotIP, ""},
		{"group source", "020000000002 030000000001 0806", NotIP, "source-mac"},
		{"length, not type", ether + "0026 4242", NotIP, ""},
		{"tag cut short", ether + "8100 000a 08", NotIP, "truncated"},
		{"second tag cut short", ether + "88a8 000a 8100 000b", NotIP, "truncated"},
		{"three tags", ether + "88a8 000a 8100 000b 8100 000c 0800", NotIP, "vlan-depth"},
		{"two tags and the type of a third", ether + "8100 000a 8100 000b 88a8", NotIP, "vlan-depth"},
		{"no IPv4 header", ether + "0800", Malformed, "truncated"},
		{"19 bytes of IPv4", ether + "0800 4500 0014 0000 0000 4011 0000 08080808 010101", Malformed, "truncated"},
		{"IPv4 says version 6", ether + "0800 6500 0014" + ipv4Rest, Malformed, "ip-header"},
		{"IHL 4", ether + "0800 4400 0014" + ipv4Rest, Malformed, "ip-header"},
		{"IHL past the frame", ether + "0800 4600 0018" + ipv4Rest, Malformed, "truncated"},
		{"total length below the header", ether + "0800 4500 0013" + ipv4Rest, Malformed, "ip-header"},
		{"total length 0", ether + "0800 4500 0000" + ipv4Rest, Malformed, "ip-header"},
		{"39 bytes of IPv6", ether + "86dd 60000000 0000 3b40" + strings.Repeat("00", 31), Malformed, "truncated"},
		{"IPv6 says version 4", ether + "86dd 40000000 0000 3b40" + strings.Repeat("00", 32), Malformed, "ip-header"},
		{"group source, no IPv4 header", "020000000002 030000000001 0800", Malformed, "truncated source-mac"},
	} {
		t.Run(test.name, func(t *testing.T) {
			frame, err := hex.DecodeString(strings.ReplaceAll(test.frame, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			p := Decode(frame)
			if p.Kind != test.kind || failures(p.Failed) != test.fails {
				t.Errorf("kind %d fails %q, want kind %d, %q", p.Kind, failures(p.Failed), test.kind, test.fails)
			}
		})
	}
}

// TestDecodeReflectors compares the list of ports with that of the specification.
func TestDecodeReflectors(t *testing.T) {
	want := " 17 19 69 111 137 161 389 427 520 623 1434 1900 3283 3702 5093 5353 5683 10001 11211 37810 "
	for port := range 1 << 16 {
		s := mustParse(t, u4)
		s.sport = uint16(port)
		listed := strings.Contains(want, fmt.Sprintf(" %d ", port))
		if got := Decode(s.Frame()).Failed.Has(ReflectorSource); got != listed {
			t.Errorf("port %d: reflector %t", port, got)
		}
	}
}

// TestDecodeCut truncates frames at every byte. Decode must not read beyond the end, and must report every incomplete packet.
func TestDecodeCut(t *testing.T) {
	for _, line := range []string{
		t4 + " S vlan=10,20 ipopts=94040000 tcpopts=mss:1460,sack,ts,ws:7 payload=\"data\"",
		t6 + " S ext=hbh,dst,rh0,ah tcpopts=mss:1460,sack,ts,ws:7 payload=\"data\"",
		u4 + " payload=\"data\"", u6 + " vlan=3 frag=first", u6 + " frag=later payload=\"data\"",
		u4 + " dns=ANY,www.example.com,do",
		"icmp " + v4 + " payload=\"data\"", "icmpv6 " + v6 + " type=135 ext=hbh payload=\"data\"",
	} {
		frame := mustParse(t, line).Frame()
		for n := range frame {
			cut := append(make([]byte, 0, n), frame[:n]...)
			p := Decode(cut)
			if !p.Failed.Has(Truncated) {
				t.Errorf("%s: %d of %d bytes fail only %q", line, n, len(frame), failures(p.Failed))
			}
		}
		if p := Decode(append(frame, make([]byte, 18)...)); p.Failed.Has(Truncated) {
			t.Errorf("%s: truncated with bytes behind it", line)
		}
	}
}

func TestDecodeBogons(t *testing.T) {
	for _, prefix := range Bogons {
		first := prefix.Addr()
		s := Spec{proto: 47, src: first, dst: netip.MustParseAddr("8.8.8.8")}
		if first.Is6() {
			s.dst = netip.MustParseAddr("2606::1")
		}
		if !Decode(s.Frame()).Failed.Has(BogonSource) {
			t.Errorf("%s is no bogon", first)
		}
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	for _, line := range []string{t6 + " S ext=hbh,dst", u6 + " dns=ANY,www.example.com,do,cookie:0102030405060708"} {
		frame := mustParse(t, line).Frame()
		var p Packet
		if n := testing.AllocsPerRun(100, func() { p = Decode(frame) }); n != 0 {
			t.Errorf("%s: %g allocations for %s", line, n, p.Src)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	frame := mustParse(b, t4+" S").Frame()
	for b.Loop() {
		Decode(frame)
	}
}
