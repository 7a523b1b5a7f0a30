// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
)

// usedUp has limits that let only one first packet pass, over all prefixes in the tests.
const usedUp = "limit: {rate: 1/day, per: from/1/1, burst: 1}, total: 10000000/s"

// loadUsedUp loads a protected service during a flood whose first packets have used up the limit.
func loadUsedUp(t testing.TB, protocol string) flooded {
	t.Helper()
	f := loadFlooded(t, "{protect: "+protocol+", "+usedUp+"}")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	begin := map[string][]byte{"generic": {0}, "wireguard": wireguard(1, 1, 0), "quic": quicLong(0, make([]byte, 8), nil, 1200)}[protocol]
	for _, from := range []string{"10.9.9.9:9 > 192.0.2.1", "198.51.100.99:9 > 192.0.2.1", "[2001:db8::99]:9 > [2001:db8::1]"} {
		f.arrive(t, arrived(t, "udp "+from+":7000", begin))
	}
	return f
}

// TestAnsweredGoOn plays clients that a service answers during a flood. First packets have used up the limit. In the notation, < arrives and is
// dropped, <a passes because the client was answered, <+ passes because the client is known, > leaves, and +N advances the clock by N units.
func TestAnsweredGoOn(t *testing.T) {
	f := loadUsedUp(t, "generic")
	all := strings.Repeat("<a A\n", ir.MayPass)
	for name, talk := range map[string]string{
		"not answered":                "< A\n< A",
		"answered":                    "< A\n> A\n" + all + "< A\n< A",
		"IPv6":                        strings.ReplaceAll("< A\n> A\n"+all+"< A\n< A", "A", "D"),
		"answered again at once":      "> A\n" + all + "> A\n< A",
		"another port and address":    "> A\n< B\n< C\n<a A",
		"within a VLAN":               "> A\n<a A vlan=7",
		"two units later":             "> A\n+2\n<a A",
		"three units later":           "> A\n+3\n< A",
		"each two units after":        "> A\n" + strings.Repeat("+2\n<a A\n", ir.MayPass) + "+2\n< A",
		"answers to these count not":  "> A\n" + strings.Repeat("+1\n<a A\n> A\n", ir.MayPass) + "+1\n< A",
		"an answer to another counts": "> A\n" + all + "+1\n< A\n> A\n" + all + "< A",
		"known by the others":         strings.Repeat("> A\n"+all+"+1\n< A\n", 3) + "> A\n<+ A",
	} {
		t.Run(name, func(t *testing.T) {
			f.playAs(t, talk, map[string]string{"<": "game:limit", "<a": "game:answered", "<+": "game:known"}, func() {})
		})
	}
	t.Run("a client that is known no more", func(t *testing.T) {
		f := loadFlooded(t, "{known: {rate: 100/s, burst: 100}, "+usedUp+"}")
		f.makeKnown(t, "A")
		f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
		frame, got := subject.FramesOf(t, floodClients["A"])[0].Frame, map[string]int{}
		for range 5000 {
			got[f.reason(t, frame)]++
		}
		if got["game:limit"] == 0 || got["game:answered"] > 0 {
			t.Errorf("of a known client that sends too much packets are counted at %v", got)
		}
	})
}

// TestAnsweredForged floods a QUIC server that answers each packet. The flood has 20,000 forged sources, each of which repeatedly sends an Initial
// and then Handshake packets. The number of packets that pass must be within the bound of docs/design/udp-floods.md. Known clients must not be
// affected.
func TestAnsweredForged(t *testing.T) {
	const total, sources, rounds = 1000, 20_000, 8
	f := loadFlooded(t, fmt.Sprintf("{protect: quic, start: 2000/s, total: {rate: %d/s, burst: %d}, limit: off}", total, total))
	f.makeKnown(t, "A", "D")
	f.state(t, uint64(image.Monotonic())+uint64(time.Hour), 0)
	f.forgetLimits(t)
	var initials, handshakes, answers [][]byte
	for i := range sources {
		client, id := fmt.Sprintf("udp 100.%d.%d.%d:%d > 192.0.2.1:7000", 64+i>>16, i>>8&255, i&255, 1024+i), binary.BigEndian.AppendUint64(nil, uint64(i))
		initials = append(initials, arrived(t, client, quicLong(0, id, id, 1200)))
		handshakes = append(handshakes, arrived(t, client, quicLong(2, id, id, 74)))
		answers = append(answers, left(t, client, quicLong(2, id, binary.BigEndian.AppendUint64(nil, uint64(i)<<32), 300)))
	}
	before, began := f.counts(t), time.Now()
	for round := range rounds {
		for i := range sources {
			frame := handshakes[i]
			if round%4 == 0 {
				frame = initials[i]
			}
			if f.arrive(t, frame) {
				f.leave(t, answers[i])
			}
			if i%1000 > 0 {
				continue
			}
			for _, name := range []string{"A", "D"} {
				if got := f.reason(t, subject.FramesOf(t, floodClients[name])[0].Frame); got != "game:known" {
					t.Fatalf("in round %d a known client is counted at %s", round, got)
				}
			}
		}
	}
	took, passed := time.Since(began).Seconds(), map[string]int{}
	for i, n := range f.counts(t) {
		if n > before[i] {
			passed[f.program.Rules[i].Name] = int(n - before[i])
		}
	}
	t.Logf("in %.1f s: %v", took, passed)
	if n, most := passed["game"], total+int(total*took)+1; n > most {
		t.Errorf("%d first packets pass in %.1f s, want %d at most", n, took, most)
	}
	if n, most := passed["game:answered"], 4*(total+int(total*took)+1); n > most || n == 0 {
		t.Errorf("%d packets of sources that are answered pass in %.1f s, want %d at most", n, took, most)
	}
}
