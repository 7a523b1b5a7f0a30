// SPDX-License-Identifier: Apache-2.0

package flowspec

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/policy"
)

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDecode decodes the examples of RFC 8955, 4.3, and of RFC 8956, 3.8, and flow specifications that are malformed or cannot be tested.
func TestDecode(t *testing.T) {
	for _, test := range []struct {
		nlri string
		ipv6 bool
		want string // the flow specification, or ! and the error
	}{
		{"0b 01 18c00002 03 8106 04 8119", false, "destination 192.0.2.0/24, protocol =6, port =25"},
		{"12 01 18c00002 02 08cb 04 0389 458b 911f90", false, "!says it has 18 bytes"},
		{"10 01 18c00002 02 08cb 04 0389 458b 911f90", false, "destination 192.0.2.0/24, source 203.0.0.0/8, port >=137&<=139|=8080"},
		{"09 01 20c0000201 0c 8005", false, "!fragment: tells the last fragment from others"},
		{"0d 01 2000 20010db8 03 8111 05 010035", true, "!destination port: ends"},
		{"0a 01 2000 20010db8 03 8111", true, "destination 2001:db8::/32, protocol =17"},
		{"0b 01 6840 123456789a 03 8106", true, "!begins at bit 64"},
		{"08 01 2000 20010db8 03", true, "!protocol: ends without a last operator"},
		{"00", false, "!has no component"},
		{"", false, "!has no length"},
		{"f0", false, "!ends within its length"},
		{"f001 01", false, "!destination: ends before its prefix"},
		{"05 01 21c00002", false, "!has a prefix of 33 bits"},
		{"05 01 20c00002", false, "!ends within its prefix"},
		{"06 03 8106 03 8111", false, "!protocol stands after protocol"},
		{"08 03 8106 01 18c00002", false, "!destination stands after protocol"},
		{"03 0d 8101", true, "!flow label: cannot be tested"},
		{"03 0e 8101", false, "!type 14: is not known"},
		{"03 00 8101", false, "!type 0: is not known"},
		{"03 03 0106", false, "!ends without a last operator"},
		{"04 0a b1 0100", false, "!ends within a value of 8 bytes"},
		{"04 09 91 0102", false, "!reserved bits"},
		{"04 09 91 0002", false, "TCP flags all:0x02"},
		{"06 09 a1 00000002", false, "!more than two bytes"},
		{"04 0b 91 0002", false, "!DSCP: has a value of more than one byte"},
		{"03 0c 8002", false, "fragment any:0x02"},
		{"03 0c 8001", true, "fragment any:0x01"}, // IPv6 has no such bit, so the test never holds
		{"03 0c 8001", false, "!the bit against fragmentation"},
		{"05 01 18c0000203", false, "destination 192.0.2.0/24"},
	} {
		if test.want == "destination 192.0.2.0/24" { // the bytes after it belong to the next flow specification
			f, rest, err := Decode(bytesOf(t, test.nlri), test.ipv6)
			if err != nil || f.String() != test.want || len(rest) != 0 && rest[0] != 3 {
				t.Errorf("%s: %v, %x, %v", test.nlri, f, rest, err)
			}
			continue
		}
		f, rest, err := Decode(bytesOf(t, test.nlri), test.ipv6)
		got := f.String()
		if err != nil {
			got = "!" + err.Error()
		}
		wrong, refused := strings.CutPrefix(test.want, "!")
		if refused != (err != nil) || !strings.Contains(got, wrong) || err == nil && (len(rest) > 0 || got != test.want) {
			t.Errorf("%s: %s, rest %x, want %s", test.nlri, got, rest, test.want)
		}
	}
}

// TestManyTerms uses components with more operators or more ranges than are accepted, because they would cost much CPU time.
func TestManyTerms(t *testing.T) {
	var terms []term
	for i := range uint64(1000) {
		terms = append(terms, term{op: opEqual, value: 2 * i})
	}
	for n, want := range map[int]string{65: "65 ranges", 129: "more than 128 operators", 1000: "more than 128 operators"} {
		body := append([]byte{byte(SourcePort)}, writeTerms(terms[:n])...)
		nlri := append(binary.BigEndian.AppendUint16(nil, 0xf000|uint16(len(body))), body...)
		if _, _, err := Decode(nlri, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d operators: %v, want %s", n, err, want)
		}
	}
}

// TestActions checks the actions for routes with extended communities.
func TestActions(t *testing.T) {
	rate := func(kind string, r float64) string {
		return kind + "fde8" + hex.EncodeToString(binary.BigEndian.AppendUint32(nil, math.Float32bits(float32(r))))
	}
	for _, test := range []struct{ communities, want string }{
		{"", "pass"},
		{"8006000000000000", "drop"},
		{rate("8006", -5), "drop"},
		{rate("8006", 0.001), "drop"},
		{rate("8006", 125000), "limit 1000000bit/s"},
		{rate("8006", 1e12), "pass"},
		{rate("8006", math.Inf(1)), "pass"},
		{rate("8006", math.NaN()), "!no number"},
		{rate("800c", 1000), "limit 1000/s"},
		{rate("800c", 0), "drop"},
		{rate("800c", 1000) + " " + rate("8006", 125000), "limit 1000000bit/s, 1000/s"},
		{rate("800c", 1000) + " " + rate("8006", 0), "drop"},
		{rate("8006", 1000) + " " + rate("8006", 0), "!two rates"},
		{rate("8006", 0) + " " + rate("8006", 0), "drop"},
		{"8007000000000001", "!traffic-action"},
		{"8008fde800000001 " + rate("8006", 0), "!rt-redirect"},
		{"8208fde800000001", "!rt-redirect"},
		{"800900000000002e", "!traffic-marking"},
		{"0800c00002010000", "!redirect-to-ip"},
		{"800f000000000000", "!0x800f is not known"},
		{"0002fde800000001 " + rate("8006", 0), "drop"}, // a route target
	} {
		var list []Community
		for _, c := range strings.Fields(test.communities) {
			list = append(list, Community(bytesOf(t, c)))
		}
		a, err := ActionOf(list)
		got := a.String()
		if err != nil {
			got = "!" + err.Error()
		}
		if wrong, refused := strings.CutPrefix(test.want, "!"); refused != (err != nil) || !strings.Contains(got, wrong) || err == nil && got != test.want {
			t.Errorf("%s: %s, want %s", test.communities, got, test.want)
		}
	}
}

// FuzzDecode decodes any bytes as NLRI. A valid flow specification must survive encoding and decoding, and be translated to rules.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"0b0118c00002038106048119", "0c01684012345678 9a038106", "100118c000020208cb0403 89458b911f90", "030c8002", "0d01200020010db803 81110b812e"} {
		b, _ := hex.DecodeString(strings.ReplaceAll(seed, " ", ""))
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, nlri []byte, ipv6 bool) {
		flow, rest, err := Decode(nlri, ipv6)
		if err != nil {
			return
		}
		if len(rest) >= len(nlri) {
			t.Fatal("nothing was read")
		}
		again, rest, err := Decode(nlriOf(flow), ipv6)
		if err != nil || len(rest) > 0 || Compare(flow, again) != 0 || flow.String() != again.String() {
			t.Fatalf("%v: %v, %v", flow, again, err)
		}
		for _, tr := range Segment([]Route{{flow, Action{Drop: true}}, {flow, Action{}}}, nil) {
			if len(tr.Rules) > maxBoxes || slices.ContainsFunc(tr.Rules, func(r *policy.Rule) bool { return len(r.Line()) > maxLine }) {
				t.Fatalf("%d rules", len(tr.Rules))
			}
		}
	})
}

// nlriOf returns the NLRI of a flow specification, including its length.
func nlriOf(f Flow) []byte {
	body := f.body()
	if len(body) < longLength {
		return append([]byte{byte(len(body))}, body...)
	}
	return append([]byte{0xf0 | byte(len(body)>>8), byte(len(body))}, body...)
}
