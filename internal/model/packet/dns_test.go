// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/hex"
	"strings"
	"testing"
)

// Parts of DNS messages in hex: the header of a query with one question and no other records, and a question.
const (
	dnsHead  = "1234 0100 0001 0000 0000 0000 "
	dnsHead1 = "1234 0100 0001 0000 0000 0001 " // with an additional record
	dnsHead2 = "1234 0100 0001 0000 0000 0002 "
	dnsWWW   = "03777777 076578616d706c65 00 " // www.example
	dnsANY   = "00ff 0001 "
	dnsOPT   = "00 0029 1000 00000000 "
)

// labels returns a name with labels of these sizes, without the root, in hex.
func labels(sizes ...int) string {
	var b strings.Builder
	for _, n := range sizes {
		b.WriteString(hex.EncodeToString(append([]byte{byte(n)}, strings.Repeat("a", n)...)) + " ")
	}
	return b.String()
}

// dnsTests test each rule of Packet.dns with a message that obeys the rule, and with one that violates it.
var dnsTests = []struct{ name, message, want string }{
	{"ANY", dnsHead + dnsWWW + dnsANY, "255"},
	{"class ANY", dnsHead + dnsWWW + "0010 00ff", "16"},
	{"type 0", dnsHead + dnsWWW + "0000 0001", "0"},
	{"type 65535", dnsHead + dnsWWW + "ffff 0001", "65535"},
	{"the root", dnsHead + "00" + dnsANY, "255"},
	{"other flags", "1234 07ff 0001 0000 0000 0000" + dnsWWW + dnsANY, "255"},

	{"nothing", "", "malformed"},
	{"11 bytes", "1234 8100 0001 0000 0000 00", "malformed"},
	{"a header", dnsHead, "malformed"},
	{"response", "1234 8180 0001 0001 0000 0000", "response"},
	{"response with an opcode", "1234 ffff ffff ffff ffff ffff", "response"},
	{"inverse query", "1234 0800 0001 0000 0000 0000", "other"},
	{"update", "1234 2800 ffff ffff ffff ffff", "other"},
	{"opcode 15", "1234 7800 0000 0000 0000 0000", "other"},

	{"no question", "1234 0100 0000 0000 0000 0000", "malformed"},
	{"no question, but there", "1234 0100 0000 0000 0000 0000" + dnsWWW + dnsANY, "malformed"},
	{"two questions", "1234 0100 0002 0000 0000 0000" + dnsWWW + dnsANY + dnsWWW + dnsANY, "malformed"},
	{"257 questions", "1234 0100 0101 0000 0000 0000" + dnsWWW + dnsANY, "malformed"},
	{"an answer", "1234 0100 0001 0001 0000 0000" + dnsWWW + dnsANY, "malformed"},
	{"256 answers", "1234 0100 0001 0100 0000 0000" + dnsWWW + dnsANY, "malformed"},
	{"an authority", "1234 0100 0001 0000 0001 0000" + dnsWWW + dnsANY, "malformed"},
	{"three additional", "1234 0100 0001 0000 0000 0003" + dnsWWW + dnsANY + dnsOPT + "0000", "malformed"},
	{"256 additional", "1234 0100 0001 0000 0000 0100" + dnsWWW + dnsANY + dnsOPT + "0000", "malformed"},

	{"label of 63", dnsHead + labels(63) + "00" + dnsANY, "255"},
	{"label of 64", dnsHead + labels(64) + "00" + dnsANY, "malformed"},
	{"label of type 10", dnsHead + "80 00" + dnsANY, "malformed"},
	{"compression pointer", dnsHead + "c00c" + dnsANY, "malformed"},
	{"compression pointer behind a label", dnsHead + "0161 c00c" + dnsANY, "malformed"},
	{"name of 255", dnsHead + labels(63, 63, 63, 61) + "00" + dnsANY, "255"},
	{"name of 256", dnsHead + labels(63, 63, 63, 62) + "00" + dnsANY, "malformed"},
	{"name of 257", dnsHead + labels(63, 63, 63, 61, 1) + "00" + dnsANY, "malformed"},
	{"name of 319", dnsHead + labels(63, 63, 63, 63, 61) + "00" + dnsANY, "malformed"},
	{"127 labels", dnsHead + strings.Repeat("0161", 127) + "00" + dnsANY, "255"},
	{"128 labels", dnsHead + strings.Repeat("0161", 128) + "00" + dnsANY, "malformed"},
	{"name without end", dnsHead + "03777777", "malformed"},
	{"label past the end", dnsHead + "3f777777 00" + dnsANY, "malformed"},
	{"no type", dnsHead + dnsWWW, "malformed"},
	{"half a class", dnsHead + dnsWWW + "00ff 00", "malformed"},

	{"byte left over", dnsHead + dnsWWW + dnsANY + "00", "malformed"},
	{"OPT left over", dnsHead + dnsWWW + dnsANY + dnsOPT + "0000", "malformed"},
	{"OPT", dnsHead1 + dnsWWW + dnsANY + dnsOPT + "0000", "255 edns=4096"},
	{"OPT with DO", dnsHead1 + dnsWWW + dnsANY + "00 0029 0200 00008000 0000", "255 edns=512 do"},
	{"OPT with other flags", dnsHead1 + dnsWWW + dnsANY + "00 0029 01ff ffff7fff 0000", "255 edns=512"},
	{"OPT missing", dnsHead1 + dnsWWW + dnsANY, "malformed"},
	{"OPT cut short", dnsHead1 + dnsWWW + dnsANY + dnsOPT + "00", "malformed"},
	{"OPT data past the end", dnsHead1 + dnsWWW + dnsANY + dnsOPT + "0001", "malformed"},
	{"OPT data of 65535", dnsHead1 + dnsWWW + dnsANY + dnsOPT + "ffff 00", "malformed"},
	{"OPT data before the end", dnsHead1 + dnsWWW + dnsANY + dnsOPT + "0000 00", "malformed"},
	{"OPT and one more", dnsHead2 + dnsWWW + dnsANY + dnsOPT + "0000" + "00 00fa 00ff 00000000 0000", "255 edns=4096"},
	{"OPT and no more", dnsHead2 + dnsWWW + dnsANY + dnsOPT + "0000", "malformed"},
	{"OPT and ten bytes more", dnsHead2 + dnsWWW + dnsANY + dnsOPT + "0000" + "03666f6f 00 00fa 00ff 00", "malformed"},
	{"OPT and eleven bytes more", dnsHead2 + dnsWWW + dnsANY + dnsOPT + "0000" + "03666f6f 00 00fa 00ff 0000", "255 edns=4096"},
	{"OPT data past the end before one more", dnsHead2 + dnsWWW + dnsANY + dnsOPT + "0001", "malformed"},
	{"TSIG", dnsHead1 + dnsWWW + dnsANY + "03666f6f 00 00fa 00ff 00000000 0003 010203", "255"},
	{"root TSIG", dnsHead1 + dnsWWW + dnsANY + "00 00fa 00ff 00000000 ffff", "255"},
	{"TSIG and OPT", dnsHead2 + dnsWWW + dnsANY + "00 00fa 00ff 00000000 0000" + dnsOPT + "0000", "255"},
	{"TSIG that looks like OPT", dnsHead1 + dnsWWW + dnsANY + "01 0029 1000 00000000 ffff", "255"},
	{"ten bytes of a record", dnsHead1 + dnsWWW + dnsANY + "03666f6f 00 00fa 00ff 00", "malformed"},

	{"class CH", dnsHead + dnsWWW + "00ff 0003", "other"},
	{"class 0", dnsHead + dnsWWW + "0001 0000", "other"},
	{"class 257", dnsHead + dnsWWW + "0001 0101", "other"},
	{"class CH, byte left over", dnsHead + dnsWWW + "00ff 0003 00", "malformed"},
	{"class CH, OPT past the end", dnsHead1 + dnsWWW + "00ff 0003" + dnsOPT + "0001", "malformed"},
}

// dnsWords describes the decoded message in the notation of the tests.
func dnsWords(p Packet) string {
	words := show(DNS, p.Value[DNS])
	if p.Query.EDNS() {
		words += " edns=" + show(Length, uint32(p.Query.UDPSize()))
	}
	if p.Query.DO() {
		words += " do"
	}
	return words
}

// dnsFrame returns the frame of a datagram with these bytes as payload.
func dnsFrame(t testing.TB, flow, message string) []byte {
	t.Helper()
	bytes, err := hex.DecodeString(strings.ReplaceAll(message, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	s := mustParse(t, flow)
	s.payload = bytes
	return s.Frame()
}

func TestDecodeDNS(t *testing.T) {
	for _, test := range dnsTests {
		t.Run(test.name, func(t *testing.T) {
			for _, flow := range []string{u4, u6, u4 + " vlan=10", "udp 8.8.8.8:53 > 1.1.1.1:40000"} {
				frame := dnsFrame(t, flow, test.message)
				if got := dnsWords(Decode(frame)); got != test.want {
					t.Errorf("%s: %s, want %s", flow, got, test.want)
				}
				if got := dnsWords(Decode(append(frame, make([]byte, 20)...))); got != test.want {
					t.Errorf("%s, padded: %s, want %s", flow, got, test.want)
				}
			}
		})
	}
}

// TestDecodeDNSDatagram tests which packets can contain a DNS message.
func TestDecodeDNSDatagram(t *testing.T) {
	const query = " dns=ANY,example.com,edns:4096"
	for _, test := range []struct{ line, want string }{
		{u4 + query, "255 edns=4096"},
		{u6 + query + " ext=hbh,dst", "255 edns=4096"},
		{u4 + query + " ipopts=94040000 csum=bad", "255 edns=4096"},
		{u4 + query + " frag=0", "255 edns=4096"},
		{u6 + query + " ext=frag", "255 edns=4096"},
		{"udp 8.8.8.8:0 > 1.1.1.1:0" + query, "255 edns=4096"},
		{u4 + query + ",response", "response"},
		{u4 + query + ",opcode:4", "other"},
		{u4 + query + ",class:4", "other"},
		{u4 + query + " len=69", "malformed"}, // padded with a byte
		{u4 + query + " udplen=47", "malformed"},
		{u4 + query + " udplen=49", "malformed"},
		{u4 + query + " udplen=0", "malformed"},
		{u4 + query + " cut=81", "malformed"},
		{u4 + query + ",response udplen=49", "malformed"},
		{u4 + query + " frag=first", "malformed"},
		{u6 + query + " frag=first", "malformed"},
		{u4 + query + ",response frag=first", "malformed"},
		{u4, "malformed"},
		{u4 + query + " frag=later", "none"},
		{u6 + query + " frag=8", "none"},
		{u4 + query + " cut=41", "none"},
		{u4 + query + " totlen=27", "none"},
		{u6 + " ext=dst,dst,dst,dst,dst,dst,dst" + query, "none"},
		{t4, "none"},
		{"proto=17 " + v4, "none"},
		{"icmp " + v4, "none"},
	} {
		p := mustParse(t, test.line).Packet()
		if got := dnsWords(p); got != test.want {
			t.Errorf("%s\n is %s, want %s", test.line, got, test.want)
		}
	}
}

// TestQueryName checks the text of names with special bytes, which Name must escape so that different names have different texts.
func TestQueryName(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"00", ""},
		{"0161 00", "a"},
		{"0141 015a 0162 00", "a.z.b"},
		{"03777777 076578616d706c65 00", "www.example"},
		{"03612e62 0163 00", `a\046b.c`},
		{"03615c62 00", `a\092b`},
		{"07 5c303436 2d2a5f 00", `\092046-*_`},
		{"06 0020 7f 80 ff 7e 00", `\000\032\127\128\255~`},
		{"04 405b6061 00", "@[`a"},
	} {
		p := Decode(dnsFrame(t, u4, dnsHead+test.name+dnsANY))
		if got := p.Query.Name(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	for _, line := range []string{u4, u4 + " dns=A,example.com,response", u4 + " dns=A,example.com,class:3", t4} {
		if q := mustParse(t, line).Packet().Query; q.Name() != "" || q.EDNS() || q.DO() || q.Cookie() != nil || q.UDPSize() != 512 {
			t.Errorf("%s: query %+v", line, q)
		}
	}
}

// TestQueryCookie tests OPT records with options, and the cookie that Decode finds in them.
func TestQueryCookie(t *testing.T) {
	const client, server = "0102030405060708", "1112131415161718"
	for _, test := range []struct{ options, want string }{
		{"", ""},
		{"000a 0008" + client, client},
		{"000a 0010" + client + server, client + server},
		{"000a 0028" + client + strings.Repeat(server, 4), client + strings.Repeat(server, 4)},
		{"000a 0011" + client + server + "00", client + server + "00"},
		{"000a 0000", ""},
		{"000a 0007 01020304050607", ""},
		{"000a 0009" + client + "00", ""},
		{"000a 000f" + client + "11121314151617", ""},
		{"000a 0029" + client + strings.Repeat(server, 4) + "00", ""},
		{"0003 0000 000a 0008" + client, client},
		{"000c 0003 000000 000a 0008" + client + "0003 0000", client},
		{strings.Repeat("0003 0000", 7) + "000a 0008" + client, client},
		{strings.Repeat("0003 0000", 8) + "000a 0008" + client, ""},
		{"000a 0001 00 000a 0008" + client, ""}, // the first counts
		{"000a 0008" + client + "000a 0008" + server, client},
		{"0003 0001 000a 0008" + client, ""}, // the option ends within the next
		{"0003 0020 000a 0008" + client, ""},
		{"000a 0008 01020304050607", ""},
		{"000a 00", ""},
		{"010a 0008" + client, ""},
	} {
		options := strings.ReplaceAll(test.options, " ", "")
		size := hex.EncodeToString([]byte{0, byte(len(options) / 2)})
		p := Decode(dnsFrame(t, u4, dnsHead1+dnsWWW+dnsANY+dnsOPT+size+options))
		if p.Value[DNS] != 255 {
			t.Errorf("%s: %s", test.options, dnsWords(p))
		}
		if got := hex.EncodeToString(p.Query.Cookie()); got != test.want {
			t.Errorf("%s: cookie %s, want %s", test.options, got, test.want)
		}
	}
}
