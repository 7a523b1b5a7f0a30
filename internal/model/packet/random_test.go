// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

var testHints = Hints{
	Addrs: prefixes("203.0.113.0/24", "198.51.100.7/32", "2001:db8:1::/48", "0.0.0.0/0", "ff00::/8", "255.255.255.255/32"),
	Values: [NumFields][]uint32{
		Proto: {47, 6, 132}, DPort: {80, PortUDP + 53, 65535}, SPort: {1023}, Flags: {tcpSYN, FlagsNone}, ICMP: {8 << 8, ICMPv6 + 135<<8},
		Length: {1000, 65535}, TTL: {5}, DSCP: {46}, Fragment: {FragmentLater}, VLAN: {10, VLANNone},
		DNS: {1, 255, DNSResponse, DNSOther, DNSMalformed, DNSNone},
	},
	Names: []string{"example.com", "bad.example", ""},
	Texts: [][]byte{[]byte("GET /|x|"), {0, 0xff}},
}

func addrEqual(a, b netip.Addr) bool { return a == b }

// TestRandomReaches checks that the generator produces packets for every check, kind and value that policies can mention.
func TestRandomReaches(t *testing.T) {
	r := seeded(t)
	var failed CheckSet
	var kinds [IP + 1]int
	var hits [NumFields]map[uint32]int
	for f := range hits {
		hits[f] = map[uint32]int{}
	}
	inside, names, texts := 0, map[string]int{}, map[string]int{}
	for range 100_000 {
		frame := Random(r, testHints)
		if len(frame) < etherHeader || len(frame) > 1600 {
			t.Fatalf("%d bytes", len(frame))
		}
		p := Decode(frame)
		failed |= p.Failed
		kinds[p.Kind]++
		if p.Kind != IP {
			continue
		}
		for f := range hits {
			hits[f][p.Value[f]]++
		}
		if testHints.Addrs[0].Contains(p.Src) && testHints.Addrs[1].Contains(p.Dst) {
			inside++
		}
		if p.Value[DNS] < DNSResponse {
			names[p.Query.Name()]++
			if _, above, below := strings.Cut(p.Query.Name(), "."); below {
				names["*."+above]++
			}
		}
		for _, text := range testHints.Texts {
			if bytes.Contains(p.Payload, text) {
				texts[string(text)]++
			}
		}
	}
	for c := range NumChecks {
		if c != OwnSource && !failed.Has(c) {
			t.Errorf("no frame fails %s", c)
		}
	}
	for k, n := range kinds {
		if n < 1000 {
			t.Errorf("%d frames of kind %d", n, k)
		}
	}
	for f, values := range testHints.Values {
		for _, v := range values {
			if hits[f][v] < 20 {
				t.Errorf("%d frames with %s=%s", hits[f][v], Field(f), show(Field(f), v))
			}
		}
	}
	for _, name := range append([]string{"*.example.com", "xexample.com", "com"}, testHints.Names...) {
		if names[name] < 20 {
			t.Errorf("%d queries for %q", names[name], name)
		}
	}
	for _, text := range testHints.Texts {
		if texts[string(text)] < 100 {
			t.Errorf("%d payloads with %q", texts[string(text)], text)
		}
	}
	if inside < 100 {
		t.Errorf("%d frames from and to the policy's addresses", inside)
	}
}

func TestRandomRepeats(t *testing.T) {
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		if !bytes.Equal(Random(a, testHints), Random(b, testHints)) {
			t.Fatal("the same seed gives other frames")
		}
	}
}

// TestRandomSpecPasses checks that well-formed packets fail none of the checks of lengths.
func TestRandomSpecPasses(t *testing.T) {
	r := seeded(t)
	lengths := CheckSet(0).With(Truncated).With(IPHeader).With(TCPHeader).With(UDPLength).With(IPChecksum).With(VLANDepth)
	for range 20_000 {
		s := RandomSpec(r, testHints)
		if p := Decode(s.Frame()); p.Kind != IP || p.Failed&lengths != 0 {
			t.Fatalf("%s: kind %d, fails %s", s, p.Kind, failures(p.Failed))
		}
	}
}

func BenchmarkRandom(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		Random(r, testHints)
	}
}
