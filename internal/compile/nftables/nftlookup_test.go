// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestNftLookups checks how tables with verdict maps count random packets from a wire, in the same way as TestNftCounts. Most rules test the same
// keys, and their values overlap. So the maps select chains with several rules.
func TestNftLookups(t *testing.T) {
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return
	}
	w := subject.NewWire(t)
	_, seed := subject.Seeded(t)
	policies, counted, maps := testutil.Scaled(12, 1000), 0, 0
	for i := range policies {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		s := subject.Lower(t, overlapping(&subject.Writer{Rand: r}, 10+r.IntN(50))).Optimized()
		x, err := atIngress(s.Program)
		if err != nil || x == nil {
			t.Fatalf("policy %d: not at ingress: %v", i, err)
		}
		maps += strings.Count(x.Script, " vmap ")
		if i < 3 {
			accepts(t, x.Script)
		}
		subject.Nft(t, x.Script, "-f", "-")
		hints := subject.RuleHints(s, &subject.Writer{Rand: r})
		var frames [][]byte
		for range 600 {
			frame := packet.RandomSpec(r, hints[r.IntN(len(hints))]).Frame()
			if told(s, x, frame) && w.Send(frame) {
				frames = append(frames, frame)
			}
		}
		counted += len(frames)
		sameCounters(t, w, fmt.Sprintf("policy %d", i), s, x, frames)
		subject.Nft(t, "", "flush", "ruleset")
	}
	t.Logf("%d packets, %d verdict maps", counted, maps)
	if counted < policies*200 || maps < policies*2 {
		t.Errorf("want more of both")
	}
}

// overlapping returns a policy in which most rules test the same one to three keys.
func overlapping(w *subject.Writer, rules int) string {
	family := 0
	address := func() string {
		high, low := w.IntN(4), w.IntN(8)
		if family == 2 { // both
			return fmt.Sprintf(`[10.0.%d.%d, "2001:db8::%x:%x"]`, high, low, low, high)
		}
		host := [2]string{fmt.Sprintf("10.0.%d.%d", high, low), fmt.Sprintf("2001:db8::%x:%x", high, low)}[family]
		a := netip.MustParseAddr(host)
		switch w.IntN(9) {
		case 0, 1, 2, 3:
			p, _ := a.Prefix(a.BitLen() - subject.Choose(w, 1, 8, 8, 10))
			return strconv.Quote(p.String())
		case 4: // ranges that contain the first or the last address
			return strconv.Quote([2]string{subject.Choose(w, "0.0.0.0/1", "128.0.0.0/1", "255.0.0.0/8"), subject.Choose(w, "::/2", "8000::/1")}[family])
		case 5, 6:
			return strconv.Quote(host + "-" + [2]string{"10.0.3.255", "2001:db8::3:ffff"}[family])
		}
		return strconv.Quote(host)
	}
	port := func() string {
		first := w.IntN(30)
		last := first + w.IntN(1+w.IntN(40))
		if w.OneIn(8) {
			last = 65535
		}
		return fmt.Sprintf("%s%d-%d", subject.Choose(w, "tcp/", "udp/", ""), first, last)
	}
	keys := []func() string{
		func() string { return "from: " + address() },
		func() string { return "to: " + address() },
		func() string { return "port: " + port() },
		func() string { return "sport: " + strings.TrimLeft(port(), "tcpud/") },
		func() string {
			return "proto: " + subject.Choose(w, "tcp", "udp") + ", port: " + strings.TrimLeft(port(), "tcpud/")
		},
		func() string { return "proto: " + w.Proto() },
	}
	usual := 1 + w.IntN(7) // number of bits, of the lowest three
	b := "default: " + subject.Choose(w, "pass", "drop") + "\nreplies: drop\nchecks: off\nrules:\n"
	for i := range rules {
		b += fmt.Sprintf("  - {name: r%d, ", i)
		n := 0
		family = w.IntN(3)
		for k, key := range keys {
			ports := strings.Contains(b[strings.LastIndex(b, "{"):], "port: ")
			if k < 3 && (usual>>k&1 == 1) != w.OneIn(15) || k == 3 && w.OneIn(6) || k > 3 && !ports && w.OneIn(4) {
				b += key() + ", "
				n++
			}
			if strings.Contains(b[strings.LastIndex(b, "{"):], "proto: ") {
				break
			}
		}
		if n == 0 {
			b += keys[0]() + ", "
		}
		b += "then: " + subject.Choose(w, "pass", "drop") + "}\n"
	}
	return b
}
