// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// miekgQuery packs a random query with an independent implementation.
func miekgQuery(t *testing.T, r *rand.Rand) (m *dns.Msg, packed []byte) {
	t.Helper()
	m = new(dns.Msg)
	m.SetQuestion(miekgName(r), uint16(r.Uint32()))
	if r.IntN(8) == 0 {
		m.Question[0].Qclass = dns.ClassANY
	}
	m.Id, m.CheckingDisabled, m.RecursionDesired = uint16(r.Uint32()), r.IntN(2) == 0, r.IntN(2) == 0
	if r.IntN(2) == 0 {
		m.SetEdns0(uint16(r.Uint32()), r.IntN(2) == 0)
	}
	if opt := m.IsEdns0(); opt != nil && r.IntN(2) == 0 {
		opt.Option = append(opt.Option, &dns.EDNS0_PADDING{Padding: make([]byte, r.IntN(20))})
		cookie := randomBytes(r, []int{8, 16, 40}[r.IntN(3)])
		opt.Option = append(opt.Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: hex.EncodeToString(cookie)})
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatalf("%v\n%s", err, m)
	}
	return m, packed
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// miekgName returns a name of random bytes, in the presentation format of RFC 1035.
func miekgName(r *rand.Rand) string {
	var wire []byte
	for range r.IntN(6) {
		label := randomBytes(r, 1+r.IntN(1+r.IntN(63)))
		if r.IntN(2) == 0 {
			for i := range label {
				label[i] = "abcXYZ-_019"[label[i]%11]
			}
		}
		if len(wire)+1+len(label) < 255 {
			wire = append(append(wire, byte(len(label))), label...)
		}
	}
	name, _, err := dns.UnpackDomainName(append(wire, 0), 0)
	if err != nil {
		panic(err)
	}
	return name
}

// lowerWire packs a name in lower case.
func lowerWire(t *testing.T, name string) []byte {
	t.Helper()
	b := make([]byte, 256)
	n, err := dns.PackDomainName(dns.Fqdn(name), b, 0, nil, false)
	if err != nil {
		t.Fatalf("%q: %v", name, err)
	}
	for i, c := range b[:n] {
		if c >= 'A' && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return b[:n]
}

// decodeDNS decodes a message in a UDP datagram.
func decodeDNS(message []byte) Packet {
	s := Spec{layer: layerUDP, proto: ProtoUDP, ports: true, sport: 40000, dport: 53, src: addrs("8.8.8.8")[0], dst: addrs("1.1.1.1")[0]}
	s.payload = message
	return Decode(s.Frame())
}

// TestDecodeAgainstMiekg compares the decoded fields of random queries with the values that an independent implementation packed.
func TestDecodeAgainstMiekg(t *testing.T) {
	r := seeded(t)
	for range 20_000 {
		m, packed := miekgQuery(t, r)
		p := decodeDNS(packed)
		if p.Value[DNS] != uint32(m.Question[0].Qtype) {
			t.Fatalf("%x\n%s is %s", packed, m, dnsWords(p))
		}
		compareQuery(t, m, p.Query)
		if t.Failed() {
			t.Fatalf("%x\n%s", packed, m)
		}
	}
}

// compareQuery compares the question and the OPT record.
func compareQuery(t *testing.T, m *dns.Msg, q Query) {
	t.Helper()
	if got, want := lowerWire(t, q.Name()), lowerWire(t, m.Question[0].Name); !bytes.Equal(got, want) {
		t.Errorf("name %q is %x, want %x", q.Name(), got, want)
	}
	opt := m.IsEdns0()
	if q.EDNS() != (opt != nil) {
		t.Errorf("EDNS %t, OPT record %v", q.EDNS(), opt)
	}
	if opt == nil || !q.EDNS() {
		return
	}
	if q.DO() != opt.Do() || q.UDPSize() != max(512, opt.UDPSize()) {
		t.Errorf("DO %t, size %d, OPT record %v", q.DO(), q.UDPSize(), opt)
	}
	cookie := ""
	i := slices.IndexFunc(opt.Option, func(o dns.EDNS0) bool { return o.Option() == dns.EDNS0COOKIE })
	if i >= 0 {
		cookie = opt.Option[i].(*dns.EDNS0_COOKIE).Cookie
	}
	if got := hex.EncodeToString(q.Cookie()); got != cookie {
		t.Errorf("cookie %s, want %s", got, cookie)
	}
}

// TestDecodeBrokenAgainstMiekg damages queries. If Decode still finds a query, the other implementation must find the same question. If the other
// implementation would pack a message in exactly that form, Decode must find a query.
func TestDecodeBrokenAgainstMiekg(t *testing.T) {
	r := seeded(t)
	count := map[string]int{}
	for range 50_000 {
		_, packed := miekgQuery(t, r)
		g := generator{r: r}
		for range 1 + r.IntN(2) {
			if len(packed) > dnsHeader {
				packed = g.garble(packed)
			}
		}
		p, m := decodeDNS(packed), new(dns.Msg)
		err := m.Unpack(packed)
		if p.Value[DNS] < DNSResponse {
			count["query"]++
			if m.Response || len(m.Question) != 1 || uint32(m.Question[0].Qtype) != p.Value[DNS] ||
				!bytes.Equal(lowerWire(t, p.Query.Name()), lowerWire(t, m.Question[0].Name)) {
				t.Fatalf("%x\nis %s %q, not\n%s", packed, dnsWords(p), p.Query.Name(), m)
			}
		} else if err == nil && isPlainQuery(m, packed) {
			t.Fatalf("%x\nis %s, not\n%s", packed, dnsWords(p), m)
		}
		count[show(DNS, p.Value[DNS])]++
	}
	for _, kind := range []string{"query", "response", "other", "malformed"} {
		if count[kind] < 100 {
			t.Errorf("%d messages are %s", count[kind], kind)
		}
	}
}

// isPlainQuery reports whether a message is a standard query and nothing else.
func isPlainQuery(m *dns.Msg, packed []byte) bool {
	again, err := m.Pack()
	return err == nil && bytes.Equal(again, packed) && !m.Response && m.Opcode == dns.OpcodeQuery && len(m.Question) == 1 &&
		len(m.Answer)+len(m.Ns) == 0 && len(m.Extra) <= 1 &&
		(m.Question[0].Qclass == dns.ClassINET || m.Question[0].Qclass == dns.ClassANY)
}

// TestSpecDNSAgainstMiekg decodes messages that Parse builds with an independent implementation.
func TestSpecDNSAgainstMiekg(t *testing.T) {
	const line = "udp 10.0.0.1:1 > 10.0.0.2:53 dns=MX,a\\046b.Example.com,id:7,edns:4096,do,cookie:0102030405060708,class:255"
	m := new(dns.Msg)
	if err := m.Unpack(mustParse(t, line).Packet().Payload); err != nil {
		t.Fatal(err)
	}
	question := dns.Question{Name: `a\.b.Example.com.`, Qtype: dns.TypeMX, Qclass: dns.ClassANY}
	if m.Id != 7 || m.Response || !m.RecursionDesired || len(m.Question) != 1 || m.Question[0] != question {
		t.Errorf("question\n%s", m)
	}
	opt := m.IsEdns0()
	if opt == nil || opt.UDPSize() != 4096 || !opt.Do() || opt.Version() != 0 || len(opt.Option) != 1 ||
		opt.Option[0].String() != "0102030405060708" {
		t.Errorf("OPT record %v", opt)
	}
}

// TestDNSTypes compares the mnemonics of DNS types with those of an independent implementation.
func TestDNSTypes(t *testing.T) {
	for n, name := range dns.TypeToString {
		if n == dns.TypeNone || n == dns.TypeReserved || n == dns.TypeNXNAME {
			continue
		}
		got, err := ParseDNSType(strings.ToLower(name))
		if err != nil || got != n || DNSTypeText(n) != name {
			t.Errorf("%s is %d, %v, which is %s, want %d", name, got, err, DNSTypeText(n), n)
		}
	}
	for _, text := range []string{"65280", "TYPE65280", "type65280"} {
		if n, err := ParseDNSType(text); err != nil || n != 65280 || DNSTypeText(n) != "65280" {
			t.Errorf("%s is %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "TYPE", "ANYTHING", "65536", "-1", "TYPE65536"} {
		if n, err := ParseDNSType(text); err == nil {
			t.Errorf("%q is type %d", text, n)
		}
	}
}
