// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

var to = netip.MustParsePrefix("192.0.2.7/32")

// TestFlowCheck has a flow for each way in which a hostile or faulty process could write one, and the flow beside it that is valid.
func TestFlowCheck(t *testing.T) {
	nan := float32(math.NaN())
	for _, test := range []struct {
		flow Flow
		want string // "": the flow is valid
	}{
		{Flow{To: to}, ""},
		{Flow{}, "no destination prefix"},
		{Flow{To: netip.PrefixFrom(to.Addr(), 24)}, "no destination prefix"},
		{Flow{To: to, From: netip.MustParsePrefix("198.51.100.0/24")}, ""},
		{Flow{To: to, From: netip.MustParsePrefix("198.51.100.1/24")}, "no prefix of the destination's family"},
		{Flow{To: to, From: netip.MustParsePrefix("2001:db8::/32")}, "no prefix of the destination's family"},
		{Flow{To: to, Proto: []uint8{1, 2, 3, 4, 5}, Port: make([]Range, 5)}, ""},
		{Flow{To: to, Proto: []uint8{1, 2, 3, 4, 5, 6}}, "at most 5 values"},
		{Flow{To: to, Length: make([]Range, 6)}, "at most 5 values"},
		{Flow{To: to, SPort: []Range{{First: 53, Last: 52}}}, "ends below its first number"},
		{Flow{To: to, Proto: []uint8{58}, ICMP: []Range{{First: 128, Last: 255}}}, ""},
		{Flow{To: to, Proto: []uint8{1}, ICMP: []Range{{First: 8, Last: 256}}}, "above 255"},
		{Flow{To: to, ICMP: []Range{{First: 8, Last: 8}}}, "need the protocol icmp"},
		{Flow{To: to, Proto: []uint8{1, 17}, ICMP: []Range{{First: 8, Last: 8}}}, "need the protocol icmp"},
		{Flow{To: to, Proto: []uint8{6}, Set: 2, Unset: 0x10}, ""},
		{Flow{To: to, Proto: []uint8{17}, Set: 2}, "need the protocol tcp"},
		{Flow{To: to, Unset: 2}, "need the protocol tcp"},
		{Flow{To: to, Proto: []uint8{6}, Set: 2, Unset: 2}, "both set and not set"},
		{Flow{To: to, Proto: []uint8{6}, Set: 0x40}, "both set and not set, or unknown"},
		{Flow{To: to, Rate: 1e12}, ""},
		{Flow{To: to, Rate: 2e12}, "is no rate"},
		{Flow{To: to, Rate: -1}, "is no rate"},
		{Flow{To: to, Rate: nan}, "is no rate"},
	} {
		err := test.flow.Check()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, and not %q", test.flow, err, test.want)
		}
	}
}

// TestFlowText makes random flows. Announcements are told apart by their texts, so different flows must have different texts. JSON must keep a flow.
func TestFlowText(t *testing.T) {
	r := testutil.Random(t)
	texts := map[string]Flow{}
	for range testutil.Scaled(50_000, 1_000_000) {
		f := randomFlow(r)
		text := f.String()
		if other, known := texts[text]; known && !reflect.DeepEqual(f, other) {
			t.Fatalf("%#v and %#v have the text %s", f, other, text)
		}
		texts[text] = f
		b, err := json.Marshal(f)
		var read Flow
		if err == nil {
			err = json.Unmarshal(b, &read)
		}
		if err != nil || !reflect.DeepEqual(read, f) {
			t.Fatalf("%#v is %s, and that is %#v: %v", f, b, read, err)
		}
	}
	if len(texts) < 20_000 {
		t.Errorf("only %d flows", len(texts))
	}
}

// randomFlow returns a flow with few values, so that similar ones are frequent.
func randomFlow(r *rand.Rand) Flow {
	f := Flow{To: to}
	list := func() (l []Range) {
		for range r.IntN(3) * r.IntN(2) {
			first := uint16(r.IntN(3))
			l = append(l, Range{First: first, Last: first + uint16(r.IntN(2))})
		}
		return l
	}
	if r.IntN(3) == 0 {
		f.From = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, 0}), 24+r.IntN(3))
	}
	for range r.IntN(3) {
		f.Proto = append(f.Proto, []uint8{1, 6, 17, 200}[r.IntN(4)])
	}
	f.Port, f.SPort, f.ICMP, f.Length = list(), list(), list(), list()
	if f.Fragment = r.IntN(4) == 0; r.IntN(4) == 0 {
		f.Rate = float32(r.IntN(4)) * 1e6 / 3
	}
	if r.IntN(4) == 0 {
		f.Set = uint8(r.IntN(0x40))
		f.Unset = uint8(r.IntN(0x40)) &^ f.Set
	}
	return f
}

// TestAnnouncement has the end of an announcement's time, its family, and its largest texts.
func TestAnnouncement(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	u := &policy.Upstream{Announce: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	a := Announcement{Kind: FlowSpec, Flow: Flow{To: to}, Owner: strings.Repeat("a", maxText), Why: strings.Repeat("b", maxText), Start: start, End: start.Add(Longest)}
	if err := a.Check(u); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(a *Announcement){
		"too long a reason": func(a *Announcement) { a.Why += "b" },
		"too long an owner": func(a *Announcement) { a.Owner += "a" },
		"too late an end":   func(a *Announcement) { a.End = a.End.Add(1) },
		"no time at all":    func(a *Announcement) { a.End = a.Start },
		"a shorter prefix":  func(a *Announcement) { a.Flow.To = netip.MustParsePrefix("192.0.0.0/16") },
	} {
		b := a
		change(&b)
		if b.Check(u) == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for at, want := range map[time.Time]bool{start.Add(-1): false, start: true, start.Add(Longest - 1): true, start.Add(Longest): false} {
		if a.Out(at) != want {
			t.Errorf("%v after its start: %t", at.Sub(start), !want)
		}
	}
	six := netip.MustParsePrefix("2001:db8::7/128")
	for want, of := range map[policy.Family]Announcement{
		policy.IPv4FlowSpec: {Kind: FlowSpec, Flow: Flow{To: to}}, policy.IPv6FlowSpec: {Kind: FlowSpec, Flow: Flow{To: six}},
		policy.IPv4Unicast: {Kind: RTBH, Flow: Flow{To: to}}, policy.IPv6Unicast: {Kind: RTBH, Flow: Flow{To: six}},
	} {
		if got := of.Family(); got != want {
			t.Errorf("%s is of %s, and not of %s", of.Key(), got, want)
		}
	}
}

// TestFull has two routers of a family. The first that is full is named, and one of another family is not.
func TestFull(t *testing.T) {
	u := &policy.Upstream{Peers: []policy.Peer{
		{Address: netip.MustParseAddr("192.0.2.1"), Max: 1, Families: []policy.Family{policy.IPv6Unicast}},
		{Address: netip.MustParseAddr("192.0.2.2"), Max: 2, Families: []policy.Family{policy.IPv4Unicast}},
		{Address: netip.MustParseAddr("192.0.2.3"), Max: 3, Families: []policy.Family{policy.IPv4Unicast, policy.IPv6Unicast}},
	}}
	has := map[netip.Addr]int{u.Peers[0].Address: 1, u.Peers[1].Address: 1, u.Peers[2].Address: 2}
	if p := Full(u, policy.IPv4Unicast, has); p != nil {
		t.Errorf("%s is full", p.Address)
	}
	has[u.Peers[2].Address] = 3
	if p := Full(u, policy.IPv4Unicast, has); p != &u.Peers[2] {
		t.Errorf("%v is full", p)
	}
	if p := Full(u, policy.IPv6Unicast, has); p != &u.Peers[0] {
		t.Errorf("%v is full", p)
	}
}
