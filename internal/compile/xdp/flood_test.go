// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// flooded is a loaded program with a protected UDP service at port 7000, and the name of each slot's rule.
type flooded struct {
	talker
	program *ir.Program
}

func loadFlooded(t testing.TB, udp string) flooded {
	t.Helper()
	testutil.RequireRoot(t)
	s := subject.Lower(t, "default: drop\nservices: [{name: game, port: udp/7000, udp: "+udp+"}]\n")
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	return flooded{talker{s.Load(t, x)}, s.Program}
}

// reason sends a frame in, and returns the rule that counts it.
func (f flooded) reason(t testing.TB, frame []byte) string {
	t.Helper()
	before := f.counts(t)
	f.arrive(t, frame)
	for i, n := range f.counts(t) {
		if n > before[i] {
			return f.program.Rules[i].Name
		}
	}
	return "default"
}

func (f flooded) counts(t testing.TB) (packets []uint64) {
	t.Helper()
	counters, err := f.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.program.Rules {
		packets = append(packets, counters[image.SlotRules+i].Packets)
	}
	return packets
}

// TestKnownClients plays packets that make a client known. In the notation, < arrives from an unknown client, <+ arrives from a known client, >
// leaves, and +N advances the clock by N units.
func TestKnownClients(t *testing.T) {
	f := loadFlooded(t, "protect")
	const once, answered = "< A\n> A\n+1\n", "<+ A\n> A\n+1\n"
	for name, talk := range map[string]string{
		"four answers":                strings.Repeat(once, 4) + "<+ A",
		"three answers":               strings.Repeat(once, 3) + "< A",
		"within a unit":               strings.Repeat("< A\n> A\n", 20) + "+1\n< A\n> A\n< A",
		"never answered":              strings.Repeat("< A\n+1\n", 20) + "< A",
		"answered without coming":     "< A\n" + strings.Repeat("> A\n+1\n", 20) + "< A",
		"spoken to":                   strings.Repeat("> A\n+1\n", 20) + "< A",
		"another port":                strings.Repeat(once, 4) + "< B\n<+ A",
		"another address":             strings.Repeat(once, 4) + "< C\n<+ A",
		"another family":              strings.Repeat(once, 4) + "< D",
		"IPv6":                        strings.ReplaceAll(strings.Repeat(once, 4)+"<+ A", "A", "D"),
		"a VLAN":                      strings.Repeat(once, 4) + "<+ A vlan=7",
		"a first fragment":            strings.Repeat(once, 4) + "<+ A frag=first",
		"gaps of 25 seconds":          strings.Repeat("< A\n> A\n+6\n", 4) + "<+ A",
		"gaps of 40 seconds":          strings.Repeat("< A\n> A\n+10\n", 8) + "< A",
		"away for 170 seconds":        strings.Repeat(once, 4) + "<+ A\n> A\n+39\n<+ A",
		"away for 190 seconds":        strings.Repeat(once, 4) + "<+ A\n> A\n+45\n< A",
		"goes on":                     strings.Repeat(once, 4) + strings.Repeat(answered, 200) + "<+ A",
		"sent to for 190 seconds":     strings.Repeat(once, 4) + "<+ A\n" + strings.Repeat("> A\n+1\n", 45) + "< A",
		"comes unanswered for 3 min.": strings.Repeat(once, 4) + strings.Repeat("<+ A\n+1\n", 40) + "+5\n< A",
	} {
		t.Run(name, func(t *testing.T) { f.play(t, talk) })
	}
}

var floodClients = map[string]string{
	"A": "udp 198.51.100.7:4000 > 192.0.2.1:7000", "B": "udp 198.51.100.7:4001 > 192.0.2.1:7000", "C": "udp 198.51.100.8:4000 > 192.0.2.1:7000",
	"D": "udp [2001:db8::7]:4000 > [2001:db8::1]:7000",
}

// play plays a series of packets without a flood.
func (f flooded) play(t *testing.T, talk string) {
	t.Helper()
	f.playAs(t, talk, map[string]string{"<": "game:calm", "<+": "game:known"}, func() {})
}

// playAs plays a series of packets. rules has the rules that must count the packets that arrive. playAs first calls begin. If the unit of time
// changes meanwhile, it starts again.
func (f flooded) playAs(t *testing.T, talk string, rules map[string]string, begin func()) {
	t.Helper()
	for {
		began := image.Monotonic() / replyUnit
		f.forget(t)
		begin()
		var wrong []string
		for number, line := range strings.Split(talk, "\n") {
			way, who, _ := strings.Cut(line, " ")
			if units, ok := strings.CutPrefix(way, "+"); ok {
				var n uint64
				fmt.Sscan(units, &n)
				f.age(t, n)
				continue
			}
			name, rest, _ := strings.Cut(who, " ")
			if way == ">" {
				f.leave(t, subject.FramesOf(t, back(floodClients[name]))[0].Frame)
				continue
			}
			got := f.reason(t, subject.FramesOf(t, floodClients[name]+" "+rest)[0].Frame)
			if want := rules[way]; got != want {
				wrong = append(wrong, fmt.Sprintf("line %d: %s: it is counted at %s, want %s", number+1, line, got, want))
			}
		}
		if image.Monotonic()/replyUnit > began {
			continue
		}
		if wrong != nil {
			t.Error(strings.Join(wrong, "\n"))
		}
		return
	}
}

// back returns the packet in the opposite direction.
func back(packet string) string {
	words := strings.Fields(packet)
	return words[0] + " " + words[3] + " > " + words[1]
}

// TestFlood plays the start, the course and the end of a flood from many prefixes. Known clients must always pass. As many other packets must pass as
// the limits allow.
func TestFlood(t *testing.T) {
	f := loadFlooded(t, "{start: 100/s, stop: 50/s, limit: {rate: 5/s, per: from/24/56, burst: 10}, total: {rate: 20/s, burst: 100}}")
	known := subject.FramesOf(t, floodClients["A"])[0].Frame
	f.makeKnown(t, "A")
	got := map[string]int{}
	for i := range 1000 {
		got[f.reason(t, floodFrame(t, i))]++
		if i%10 == 0 && f.reason(t, known) != "game:known" {
			t.Fatalf("after %d packets the known client is not known", i)
		}
	}
	between := func(rule string, least, most int) {
		t.Helper()
		if n := got[rule]; n < least || n > most {
			t.Errorf("%d packets of 1,000 are counted at %s, want %d to %d: %v", n, rule, least, most, got)
		}
	}
	between("game:calm", 100, 500) // the burst, and the packets that the rate allows during the test
	between("game", 50, 400)       // half of the burst, and the packets that the rate allows
	between("game:total", 200, 850)
	between("game:limit", 0, 0)
	// One prefix that sends too much uses up the limit for all clients only as far as its own limit allows.
	f.state(t, uint64(image.Monotonic())+uint64(ir.FloodTime), 0)
	f.forgetLimits(t)
	clear(got)
	for range 1000 {
		got[f.reason(t, floodFrame(t, 0))]++
	}
	got["game"] += got["game:again"] // the same limits
	between("game", 10, 60)
	between("game:limit", 900, 990)
	if reason := f.reason(t, floodFrame(t, 1)); reason != "game" {
		t.Errorf("beside a flood from one prefix a packet of another is counted at %s", reason)
	}
	// The flood is over.
	f.state(t, uint64(image.Monotonic())-1, 0)
	f.forgetLimits(t)
	if reason := f.reason(t, floodFrame(t, 0)); reason != "game:calm" {
		t.Errorf("after the flood a packet is counted at %s", reason)
	}
}

// TestSpentNoted uses up the limit for all clients together. The entry then treats the limit as used up until a recorded time. The test checks that
// at this time one more packet may pass.
func TestSpentNoted(t *testing.T) {
	for _, row := range []struct {
		total       string
		burst       int
		least, most time.Duration
	}{{"{rate: 1/s, burst: 2}", 2, 0, time.Second}, {"{rate: 10/h, burst: 100}", 100, 3 * time.Minute, 6 * time.Minute}} {
		f := loadFlooded(t, "{start: 100/s, stop: 50/s, limit: off, total: "+row.total+"}")
		f.state(t, uint64(image.Monotonic())+uint64(ir.FloodTime), 0)
		f.forgetLimits(t)
		before := image.Monotonic()
		for i := range row.burst + 2 {
			f.arrive(t, floodFrame(t, i))
		}
		after := image.Monotonic()
		memory, release, err := f.Memory(image.FloodStates)
		if err != nil {
			t.Fatal(err)
		}
		spent := time.Duration(binary.NativeEndian.Uint64(memory[image.FloodStates][8:]))
		release()
		if after-before > row.most/2 { // the limit may allow a packet again meanwhile
			t.Logf("%s: it took %v to use up", row.total, after-before)
			continue
		}
		if spent <= before+row.least || spent > after+row.most {
			t.Errorf("%s: at %v it is noted to be used up until %v", row.total, after, spent)
		}
	}
}

// TestKnownClientTooMuch checks a known client that exceeds its limit. Without a flood it must stay known. During a flood it must not.
func TestKnownClientTooMuch(t *testing.T) {
	f := loadFlooded(t, "{start: 100/s, known: {rate: 160/s, burst: 160}, limit: {rate: 5/s, per: from, burst: 10}}")
	frame := subject.FramesOf(t, floodClients["A"])[0].Frame
	for _, flood := range []bool{false, true} {
		f.makeKnown(t, "A")
		if flood {
			f.state(t, uint64(image.Monotonic())+uint64(ir.FloodTime), 0)
		}
		before := f.counts(t)
		for range 10_000 {
			f.arrive(t, frame)
		}
		got := map[string]int{}
		for i, n := range f.counts(t) {
			got[f.program.Rules[i].Name] = int(n - before[i])
		}
		if n := got["game:known"]; !flood && n != 10_000 || flood && (n < 100 || n > 3000) {
			t.Errorf("flood: %t: %d of 10,000 packets pass as those of a known client: %v", flood, n, got)
		}
	}
}

// TestFloodQuestions asks the program how it would decide packets of a flood. A question must not change the state.
func TestFloodQuestions(t *testing.T) {
	f := loadFlooded(t, "{start: {rate: 20/min, burst: 1}, stop: 10/min, limit: off, total: {rate: 10/min, burst: 1}}")
	f.makeKnown(t, "A")
	f.state(t, 0, 0)
	f.forgetLimits(t)
	ask := func(frame []byte) string {
		t.Helper()
		a, err := f.AskAt(datapath.Question{Frame: frame})
		if err != nil {
			t.Fatal(err)
		}
		return f.program.Rules[a.Slot-image.SlotRules].Name
	}
	for _, step := range []struct{ arrive, want string }{{"", "game:calm"}, {"game:calm", "game"}, {"game", "game:total"}, {"game:total", "game:total"}} {
		if step.arrive != "" {
			if got := f.reason(t, floodFrame(t, 7)); got != step.arrive {
				t.Errorf("a packet is counted at %s, want %s", got, step.arrive)
			}
		}
		for range 10 {
			if got := ask(floodFrame(t, 8)); got != step.want {
				t.Errorf("behind %q a question is answered with %s, want %s", step.arrive, got, step.want)
			}
		}
		if got := ask(subject.FramesOf(t, floodClients["A"])[0].Frame); got != "game:known" {
			t.Errorf("about a known client: %s", got)
		}
	}
}

// knownModel models how a client becomes known, as ir.Flood describes: by answers in different units of time, after each of which the client has sent
// a packet.
type knownModel map[string]*struct {
	times    int
	answered int // the unit of the last answer that counts, or of the last packet that passed because of an answer
	passed   int // number of packets that passed because of an answer, since that answer
	came     bool
	known    bool
}

func (m knownModel) arrive(who string, unit int) {
	if c := m[who]; c != nil && unit > c.answered {
		c.came = true
	}
}

func (m knownModel) leave(who string, unit int) {
	c := m[who]
	switch {
	case c == nil:
		m[who] = &struct {
			times, answered, passed int
			came, known             bool
		}{times: 1, answered: unit}
	case c.came && unit > c.answered:
		c.times, c.answered, c.passed, c.came = c.times+1, unit, 0, false
		c.known = c.known || c.times >= ir.KnownTimes
	}
}

// passes reports whether an unknown client may send one more packet because of an answer. This requires that all such clients together do not send
// too many.
func (m knownModel) passes(who string, unit int) bool {
	c := m[who]
	return c != nil && !c.known && unit-c.answered <= int(ir.PassWait/ir.KnownUnit) && c.passed < ir.MayPass
}

// pass records a packet that passed.
func (m knownModel) pass(who string, unit int) {
	c := m[who]
	c.answered, c.passed, c.came = unit, c.passed+1, false
}

// forget removes clients that were silent for too long.
func (m knownModel) forget(unit int) {
	for who, c := range m {
		life := 7 // units, as after a request of this host (docs/design/udp-floods.md)
		if c.known {
			life = int(ir.KnownLife / ir.KnownUnit)
		}
		if unit-c.answered > life {
			delete(m, who)
		}
	}
}

// newcomerModel has the units of ir.AgainUnit in which packets of unknown clients were refused, as ir.AsksAgain describes.
type newcomerModel map[[2]netip.AddrPort]int

// again reports whether a packet repeats a refused packet and is within all limits. The last limit is for all clients. If so, it charges the packet.
// It records a packet that repeats no other.
func (m newcomerModel) again(limits []int, limiter *ir.Limiter, pkt *packet.Packet, at time.Duration) bool {
	flow := [2]netip.AddrPort{netip.AddrPortFrom(pkt.Src, uint16(pkt.Value[packet.SPort])), netip.AddrPortFrom(pkt.Dst, uint16(pkt.Value[packet.DPort]))}
	unit := int(at / ir.AgainUnit)
	before, noted := m[flow]
	age := (unit - before) % ir.AgainTimes
	if !noted || age > ir.AgainMost {
		m[flow] = unit
		return false
	}
	return age > 0 && !limiter.Full(limits[len(limits)-1], pkt, at) &&
		!slices.ContainsFunc(limits, func(limit int) bool { return limiter.Over(limit, pkt, at) })
}

// TestFloodRandom plays random clients that send packets and are answered at random times, during floods and between floods. The program must decide
// each packet like ir.Eval.
func TestFloodRandom(t *testing.T) {
	f := loadFlooded(t, "{start: {rate: 20/s, burst: 30}, stop: 5/s, limit: [{rate: 2/s, per: from/24/56, burst: 3}, {rate: 30/min, per: from}], total: {rate: 8/s, burst: 20}}")
	r, rounds, reasons := testutil.Random(t), 6, map[string]int{}
	if testutil.Long() {
		rounds = 1000
	}
	for range rounds {
		f.forget(t)
		f.state(t, 0, 0)
		f.forgetLimits(t)
		f.randomly(t, r, 2000, reasons)
	}
	for _, name := range []string{"game:known", "game:answered", "game:calm", "game:again", "game:total", "game:limit", "game"} {
		if reasons[name] < 5 {
			t.Errorf("%d packets are decided by %s, want more for a test of it: %v", reasons[name], name, reasons)
		}
	}
}

func (f flooded) randomly(t *testing.T, r *rand.Rand, steps int, reasons map[string]int) {
	t.Helper()
	began, unit, known, newcomers, limiter := image.Monotonic()/replyUnit, 0, knownModel{}, newcomerModel{}, ir.NewLimiter(f.program)
	at := time.Hour // the time on the clock of the limits, which questions set
	var pause int64 // the longest pause between packets, in nanoseconds
	for step := range steps {
		if step%200 == 0 {
			pause = []int64{1e7, 1e8, 1e9, 1e10}[r.IntN(4)]
		}
		who := fmt.Sprintf("udp 198.51.%d.%d:4000 > 192.0.2.1:7000", r.IntN(2), r.IntN(3))
		if r.IntN(4) == 0 {
			who = fmt.Sprintf("udp [2001:db8:%x::1]:4000 > [2001:db8::1]:7000", r.IntN(2)<<8)
		}
		forged := r.IntN(2) == 0
		if forged {
			who = fmt.Sprintf("udp 203.0.%d.%d:%d > 192.0.2.1:7000", r.IntN(3), r.IntN(4), r.IntN(2)+1) // few, because two flows may share a word in the table of newcomers
		}
		frame := subject.FramesOf(t, who)[0]
		switch r.IntN(24) {
		case 0:
			units := r.IntN(3) + 1
			if r.IntN(50) == 0 {
				units = r.IntN(60)
			}
			f.age(t, uint64(units))
			unit += units
			known.forget(unit)
			continue
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
			if forged { // a forged client is never answered
				continue
			}
			f.leave(t, subject.FramesOf(t, back(who))[0].Frame)
			known.leave(who, unit)
			continue
		}
		at += time.Duration(r.Int64N(pause))
		known.arrive(who, unit)
		pkt := frame.Packet()
		verdict, reason := f.program.Eval(&pkt, ir.World{
			Known: func(*packet.Packet) bool { return known[who] != nil && known[who].known },
			Answered: func(flood int, pkt *packet.Packet) bool {
				if !limiter.Floods(flood, at) || !known.passes(who, unit) || limiter.Over(f.program.Floods[flood].Answered, pkt, at) {
					return false
				}
				known.pass(who, unit)
				return true
			},
			Again: func(flood int, pkt *packet.Packet) bool {
				return newcomers.again(f.program.Floods[flood].Again, limiter, pkt, at)
			},
			Calm:  func(flood int, pkt *packet.Packet) bool { return limiter.Calm(flood, pkt, at) },
			Spent: func(limit int, pkt *packet.Packet) bool { return limiter.Spent(limit, pkt, at) },
			Over:  func(limit int, pkt *packet.Packet) bool { return limiter.Over(limit, pkt, at) },
		})
		a, err := f.AskAt(datapath.Question{Frame: frame.Frame, Now: at, Charge: true})
		if err != nil {
			t.Fatal(err)
		}
		if image.Monotonic()/replyUnit != began {
			return // the real clock advanced the time of the table
		}
		name := f.program.ReasonName(reason)
		reasons[name]++
		if got := f.program.Rules[a.Slot-image.SlotRules].Name; got != name || ir.Verdict(a.Verdict) != verdict {
			t.Fatalf("step %d: %s: the program says %s, ir.Eval says %s", step, who, got, name)
		}
	}
}

// floodFrame returns a packet from a source in a prefix of its own.
func floodFrame(t testing.TB, i int) []byte {
	t.Helper()
	return subject.FramesOf(t, fmt.Sprintf("udp 10.%d.%d.1:5000 > 192.0.2.1:7000", i/250, i%250))[0].Frame
}

// makeKnown empties the table of flows, and then makes clients known.
func (f flooded) makeKnown(t *testing.T, names ...string) {
	t.Helper()
	f.forget(t)
	for i := range ir.KnownTimes {
		if i > 0 {
			f.age(t, 1)
		}
		for _, name := range names {
			f.state(t, 0, 0) // otherwise a limit of few packets would be exceeded
			f.arrive(t, subject.FramesOf(t, floodClients[name])[0].Frame)
			f.leave(t, subject.FramesOf(t, back(floodClients[name]))[0].Frame)
		}
	}
}

// state sets the time until which there is a flood, and the time until which the limit for all clients counts as used up.
func (f flooded) state(t testing.TB, until, spent uint64) {
	t.Helper()
	memory, release, err := f.Memory(image.FloodStates)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	binary.NativeEndian.PutUint64(memory[image.FloodStates], until)
	binary.NativeEndian.PutUint64(memory[image.FloodStates][8:], spent)
}

// forgetState clears the state of floods. After that, there is no flood, and the program knows no lengths of identifiers.
func (f flooded) forgetState(t testing.TB) {
	t.Helper()
	memory, release, err := f.Memory(image.FloodStates)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	clear(memory[image.FloodStates])
}

// forgetLimits clears the debts of all limits.
func (f flooded) forgetLimits(t testing.TB) {
	t.Helper()
	memory, release, err := f.Memory(image.Limits, image.Newcomers)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	clear(memory[image.Limits])
	clear(memory[image.Newcomers])
}
