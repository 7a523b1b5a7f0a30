package xdp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
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

// reason is the rule that a frame which arrives is counted at.
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

// TestKnownClients plays what makes a client known: < arrives and is one of no known client, <+ of a known one, > leaves, +N is so many units of
// time.
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

// play plays a talk. It begins again when the clock goes on meanwhile.
func (f flooded) play(t *testing.T, talk string) {
	t.Helper()
	for {
		began := image.Monotonic() / replyUnit
		f.forget(t)
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
			if want := map[string]string{"<": "game:calm", "<+": "game:known"}[way]; got != want {
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

// back is a packet the other way.
func back(packet string) string {
	words := strings.Fields(packet)
	return words[0] + " " + words[3] + " > " + words[1]
}

// TestFlood has a flood from many prefixes begin, go on and end. Known clients pass all the time, and of others as many as the limits say.
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
	between("game:calm", 100, 500) // the burst, and the rate for as long as it takes
	between("game", 100, 400)      // likewise
	between("game:total", 200, 800)
	between("game:limit", 0, 0)
	// One prefix, of which too much comes, uses up what is for all no further than its own limit lets it.
	f.state(t, uint64(image.Monotonic())+uint64(ir.FloodTime), 0)
	f.forgetLimits(t)
	clear(got)
	for range 1000 {
		got[f.reason(t, floodFrame(t, 0))]++
	}
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

// TestKnownClientTooMuch has a known client send more than it may. Without a flood it stays known, and with one it does not.
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

// TestFloodQuestions asks about packets of a flood: the answer is what would be done with them, and nothing changes.
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

// knownModel is what makes a client known, by ir.Flood: answers in units of their own, and that it came between.
type knownModel map[string]*struct {
	times    int
	answered int // the unit of the last answer that counts
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
			times, answered int
			came, known     bool
		}{times: 1, answered: unit}
	case c.came && unit > c.answered:
		c.times, c.answered, c.came = c.times+1, unit, false
		c.known = c.known || c.times >= ir.KnownTimes
	}
}

// forget removes clients that stayed away for too long.
func (m knownModel) forget(unit int) {
	for who, c := range m {
		life := 7 // units, as after a question that this host asks: docs/design/udp-floods.md
		if c.known {
			life = int(ir.KnownLife / ir.KnownUnit)
		}
		if unit-c.answered > life {
			delete(m, who)
		}
	}
}

// TestFloodRandom has random clients come and be answered, at random times, in and out of floods. The program decides each packet as ir.Eval does.
func TestFloodRandom(t *testing.T) {
	f := loadFlooded(t, "{start: {rate: 20/s, burst: 30}, stop: 5/s, limit: [{rate: 2/s, per: from/24/56, burst: 3}, {rate: 30/min, per: from}], total: {rate: 4/s, burst: 10}}")
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
	for _, name := range []string{"game:known", "game:calm", "game:total", "game:limit", "game"} {
		if reasons[name] < 5 {
			t.Errorf("%d packets are decided by %s, want more for a test of it: %v", reasons[name], name, reasons)
		}
	}
}

func (f flooded) randomly(t *testing.T, r *rand.Rand, steps int, reasons map[string]int) {
	t.Helper()
	began, unit, known, limiter := image.Monotonic()/replyUnit, 0, knownModel{}, ir.NewLimiter(f.program)
	at := time.Hour // of the limits' clock, which questions set
	var pause int64 // between packets, at most, in nanoseconds
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
			who = fmt.Sprintf("udp 203.0.%d.%d:%d > 192.0.2.1:7000", r.IntN(3), r.IntN(250), r.IntN(9)+1)
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
			if forged { // it is never answered
				continue
			}
			f.leave(t, subject.FramesOf(t, back(who))[0].Frame)
			known.leave(who, unit)
			continue
		}
		at += time.Duration(r.Int64N(pause))
		pkt := frame.Packet()
		verdict, reason := f.program.Eval(&pkt, ir.World{
			Known: func(*packet.Packet) bool { return known[who] != nil && known[who].known },
			Calm:  func(flood int, pkt *packet.Packet) bool { return limiter.Calm(flood, pkt, at) },
			Spent: func(limit int, pkt *packet.Packet) bool { return limiter.Spent(limit, pkt, at) },
			Over:  func(limit int, pkt *packet.Packet) bool { return limiter.Over(limit, pkt, at) },
		})
		a, err := f.AskAt(datapath.Question{Frame: frame.Frame, Now: at, Charge: true})
		if err != nil {
			t.Fatal(err)
		}
		if image.Monotonic()/replyUnit != began {
			return // the clock of the table went on by itself
		}
		name := f.program.ReasonName(reason)
		reasons[name]++
		if got := f.program.Rules[a.Slot-image.SlotRules].Name; got != name || ir.Verdict(a.Verdict) != verdict {
			t.Fatalf("step %d: %s: the program says %s, ir.Eval says %s", step, who, got, name)
		}
		known.arrive(who, unit)
	}
}

// floodFrame is a packet of a source in a prefix of its own.
func floodFrame(t testing.TB, i int) []byte {
	t.Helper()
	return subject.FramesOf(t, fmt.Sprintf("udp 10.%d.%d.1:5000 > 192.0.2.1:7000", i/250, i%250))[0].Frame
}

// makeKnown empties the table, and has a client be known.
func (f flooded) makeKnown(t *testing.T, name string) {
	t.Helper()
	f.forget(t)
	for i := range ir.KnownTimes {
		if i > 0 {
			f.age(t, 1)
		}
		f.arrive(t, subject.FramesOf(t, floodClients[name])[0].Frame)
		f.leave(t, subject.FramesOf(t, back(floodClients[name]))[0].Frame)
	}
}

// state sets until when there is a flood, and until when the limit for all is exceeded.
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

// forgetState has no flood, and no identifiers read.
func (f flooded) forgetState(t testing.TB) {
	t.Helper()
	memory, release, err := f.Memory(image.FloodStates)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	clear(memory[image.FloodStates])
}

// forgetLimits has nobody owe anything.
func (f flooded) forgetLimits(t testing.TB) {
	t.Helper()
	memory, release, err := f.Memory(image.Limits)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	clear(memory[image.Limits])
}
