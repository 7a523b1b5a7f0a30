// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// programmed returns a subject for a program that is not made from a policy.
func programmed(p *ir.Program) *subject.Subject { return &subject.Subject{Program: p} }

// asks returns a rule that drops packets for which a match holds.
func asks(name string, m ir.PayloadMatch) ir.Rule {
	return ir.Rule{Name: name, Verdict: ir.Drop, Payload: []ir.PayloadMatch{m}}
}

func text(s string, within uint16) ir.Pattern { return ir.Pattern{Text: []byte(s), Within: within} }

func anyCase(s string, within uint16) ir.Pattern {
	return ir.Pattern{Text: []byte(s), NoCase: true, Within: within}
}

// carriers are packets that get a payload. There is one for each path to the payload.
var carriers = []string{
	"udp 198.51.100.7:1000 > 192.0.2.1:53",
	"udp 198.51.100.7:1000 > 192.0.2.1:53 vlan=10,20 ipopts=94040000",
	"udp [2001:db8::7]:1000 > [2001:db8::1]:53",
	"udp [2001:db8::7]:1000 > [2001:db8::1]:53 ext=hbh,dst vlan=7",
	"tcp 198.51.100.7:1000 > 192.0.2.1:80 P. ack=1 tcpopts=nop,nop,ts",
	"tcp [2001:db8::7]:1000 > [2001:db8::1]:80 P. ack=1",
	"icmp 198.51.100.7 > 192.0.2.1 echo-request",
	"gre 198.51.100.7 > 192.0.2.1",
	"udp 198.51.100.7:1000 > 192.0.2.1:53 frag=first",
	"udp 198.51.100.7:1000 > 192.0.2.1:53 frag=1480",
}

// carrying returns the packet of a line with a payload, and with bytes after its end.
func carrying(t testing.TB, line string, payload, padding []byte) subject.Probe {
	t.Helper()
	if len(payload) > 0 {
		line += fmt.Sprintf(" payload=0x%x", payload)
	}
	spec, err := packet.Parse(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return subject.Probe{Name: line, Frame: append(spec.Frame(), padding...)}
}

// TestPatternBorders moves patterns of every kind of length across the end of their window, and across the end of the packet. Behind that end, the
// rest of the pattern follows.
func TestPatternBorders(t *testing.T) {
	const within = 70
	const alphabet = "GET /index.html HTTP/1.1|\x00\xff\x80 Host: evil.example, and so on: 0123456789"
	lengths := []int{1, 2, 4, 5, 8, 9, 17, 64}
	if testutil.Long() {
		lengths = append(lengths, 3, 7, 15, 16, 63)
	}
	for _, length := range lengths {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			t.Parallel()
			pattern := alphabet[:length]
			s := programmed(&ir.Program{Rules: []ir.Rule{
				asks("exact", ir.PayloadMatch{Any: []ir.Pattern{text(pattern, within)}}),
				asks("any case", ir.PayloadMatch{Any: []ir.Pattern{anyCase(lowered(pattern), within)}}),
				asks("wider", ir.PayloadMatch{Any: []ir.Pattern{text(pattern, 1024)}}),
				asks("none", ir.PayloadMatch{Any: []ir.Pattern{text(pattern, 1024)}, Not: true}),
			}})
			var frames []subject.Probe
			add := func(payload, padding string) {
				frames = append(frames, carrying(t, carriers[len(frames)%len(carriers)], []byte(payload), []byte(padding)))
			}
			for offset := range within + 5 {
				before := strings.Repeat("x", offset)
				for _, found := range []string{pattern, raised(pattern), lowered(pattern), pattern[:length-1] + "\x01"} {
					add(before+found, "")
					add(before+found+"yz", "")
				}
				for cut := range min(length, 20) {
					add(before+pattern[:cut], pattern[cut:])
				}
			}
			for _, offset := range []int{1024 - length, 1025 - length, 1024, 1100} {
				add(strings.Repeat("x", offset)+pattern, "")
			}
			s.Agree(t, frames)
		})
	}
}

// A patternWriter writes patterns that have many parts in common. It also writes texts that contain such parts.
type patternWriter struct {
	*rand.Rand
	alphabet string
	patterns []ir.Pattern
}

func newPatternWriter(r *rand.Rand, patterns int) *patternWriter {
	w := &patternWriter{Rand: r}
	w.alphabet = []string{"a", "ab", "aAbB", "abcdefgh", "\x00\x01", "@`[{azAZ", string(byteRange())}[r.IntN(7)]
	for range patterns {
		p := ir.Pattern{Text: w.letters(1 + r.IntN(64)), Within: uint16(1 + r.IntN(1024))}
		if r.IntN(3) > 0 {
			p.Text = p.Text[:1+r.IntN(min(len(p.Text), 8))]
			p.Within = uint16(1 + r.IntN(256))
		}
		if r.IntN(3) == 0 {
			p.NoCase, p.Text = true, []byte(lowered(string(p.Text)))
		}
		p.Within = max(p.Within, uint16(len(p.Text)))
		w.patterns = append(w.patterns, p)
	}
	return w
}

func byteRange() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// lowered and raised change the case of ASCII letters. They do not change other bytes.
func lowered(s string) string { return shifted(s, 'A', 'a'-'A') }

func raised(s string) string { return shifted(s, 'a', 256+'A'-'a') }

// shifted adds the number add to the 26 byte values from first on. It does not change other bytes.
func shifted(s string, first byte, add int) string {
	b := []byte(s)
	for i, c := range b {
		if c-first < 26 {
			b[i] = byte(int(c) + add)
		}
	}
	return string(b)
}

func (w *patternWriter) letters(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = w.alphabet[w.IntN(len(w.alphabet))]
	}
	return b
}

func (w *patternWriter) pattern() ir.Pattern { return w.patterns[w.IntN(len(w.patterns))] }

// payload returns a random text that contains many parts of patterns.
func (w *patternWriter) payload() []byte {
	b := w.letters(w.IntN([]int{8, 40, 300, 1200}[w.IntN(4)]))
	for range w.IntN(4) {
		p := w.pattern()
		text := p.Text[w.IntN(2)*w.IntN(len(p.Text)):]
		if w.IntN(2) == 0 {
			text = []byte(raised(string(text)))
		}
		at := w.IntN(len(b) + 1)
		if w.IntN(3) == 0 { // near the end of the window
			at = min(max(0, int(p.Within)-len(text)+w.IntN(3)-1), len(b))
		}
		b = append(b[:at:at], append(text, b[at:]...)...)
	}
	return b[:min(len(b), 1300)]
}

func (w *patternWriter) at() ir.At {
	at := ir.At{Base: ir.Base(w.IntN(2)), Offset: uint16(w.IntN(30)), Value: w.letters(1 + w.IntN(16)), Mask: make([]byte, 16)}
	if w.IntN(10) == 0 {
		at.Offset = uint16(w.IntN(1025))
	}
	at.Mask = at.Mask[:len(at.Value)]
	for i := range at.Mask {
		at.Mask[i] = []byte{0, 1, 0x20, 0xff}[w.IntN(4)]
		at.Value[i] &= at.Mask[i]
	}
	return at
}

func (w *patternWriter) match() (m ir.PayloadMatch) {
	m.Not = w.IntN(6) == 0
	for range w.IntN(5) {
		m.Any = append(m.Any, w.pattern())
	}
	if len(m.Any) == 0 || w.IntN(4) == 0 {
		for range 1 + w.IntN(3) {
			m.At = append(m.At, w.at())
		}
	}
	return m
}

// rules returns rules that test all patterns. Rules that are less likely to match come first.
func (w *patternWriter) rules(n int) (rules []ir.Rule) {
	for i := range n {
		r := asks(fmt.Sprint("r", i), w.match())
		if w.IntN(3) == 0 {
			r.Payload = append(r.Payload, w.match())
		}
		rules = append(rules, r)
	}
	return rules
}

func (w *patternWriter) probe(t testing.TB) subject.Probe {
	padding := w.letters(w.IntN(3) * w.IntN(64))
	f := carrying(t, carriers[w.IntN(len(carriers))], w.payload(), padding)
	if w.IntN(10) == 0 {
		f.Frame = f.Frame[:14+w.IntN(len(f.Frame)-13)]
	}
	return f
}

// TestPatternsRandom tests random payloads with similar random patterns and places. FLOODWALL_LONG=1 tests 5 million packets.
func TestPatternsRandom(t *testing.T) {
	_, seed := subject.Seeded(t)
	programs, packets := testutil.Scaled(4, 250), testutil.Scaled(4000, 20_000)
	for i := range programs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			w := newPatternWriter(rand.New(rand.NewPCG(seed, uint64(i))), []int{1, 2, 10, 64}[i%4])
			s := programmed(&ir.Program{Rules: w.rules(1 + w.IntN(40))})
			frames := make([]subject.Probe, packets)
			for j := range frames {
				frames[j] = w.probe(t)
			}
			s.Agree(t, frames)
		})
	}
}

// TestPayloadPlaces moves bytes over each offset up to the end of the packet. Behind that end, the rest of the bytes follows.
func TestPayloadPlaces(t *testing.T) {
	t.Parallel()
	text := []byte("\x01\x82\xff\x00ABCDEFGHIJKLMNOPQRSTUVWXYZ012345")
	var rules []ir.Rule
	for _, base := range []ir.Base{ir.BaseL4, ir.BasePayload} {
		for length := 1; length <= 16; length++ {
			for offset := range 4 {
				mask := bytes.Repeat([]byte{0xff}, length)
				mask[length/2] = 0xf0
				value := bytes.Clone(text[offset:][:length])
				value[length/2] &= 0xf0
				at := ir.At{Base: base, Offset: uint16(offset*9 + 16 - length), Value: value, Mask: mask}
				rules = append(rules, asks(fmt.Sprintf("%d %d+%d", base, offset, length), ir.PayloadMatch{At: []ir.At{at}}))
			}
		}
	}
	var frames []subject.Probe
	for before := range 28 {
		for cut := range 24 {
			payload := append(bytes.Repeat([]byte{'x'}, before), text[:cut]...)
			for i := range 3 {
				carrier := carriers[(len(frames)+i)%len(carriers)]
				frames = append(frames, carrying(t, carrier, payload, text[cut:cut+3*(cut%2)]))
			}
		}
	}
	// A rule hides later rules that match the same packet, so the rules of each length are first once.
	for first := 0; first < len(rules); first += 32 {
		programmed(&ir.Program{Rules: append(rules[first:len(rules):len(rules)], rules[:first]...)}).Agree(t, frames)
	}
}

// TestPayloadSplit moves the border between the buffers of a large frame to each byte of a pattern and of a place.
func TestPayloadSplit(t *testing.T) {
	t.Parallel()
	at := ir.At{Offset: 300, Value: []byte("0123456789abcdef"), Mask: bytes.Repeat([]byte{0xff}, 16)}
	s := programmed(&ir.Program{Rules: []ir.Rule{
		asks("both", ir.PayloadMatch{Any: []ir.Pattern{text("evil.example", 1024)}, At: []ir.At{at}}),
	}})
	x := s.Forms(t)[0]
	testutil.RequireRoot(t)
	p := s.Load(t, x)
	payload := bytes.Repeat([]byte{'x'}, 6000)
	copy(payload[300:], at.Value)
	copy(payload[316:], "evil.example")
	f := s.Answered(carrying(t, carriers[0], payload, nil))
	if f.Verdict != ir.Drop {
		t.Fatal("the rule does not match")
	}
	for linear := 330; linear < 380; linear++ {
		slot, _, err := countSplit(t, p, f.Frame, linear)
		if errors.Is(err, unix.EINVAL) {
			t.Skip("this kernel does not let a test choose the border")
		}
		if err != nil || slot != f.Slot {
			t.Fatalf("split at %d: counted in %s, %v", linear, s.ReasonIn(slot), err)
		}
	}
}

// TestPayloadLimits checks the errors for patterns and places above the limits.
func TestPayloadLimits(t *testing.T) {
	var many ir.PayloadMatch
	for i := range 65 {
		many.Any = append(many.Any, text(fmt.Sprint(i), 256))
	}
	for _, test := range []struct {
		match ir.PayloadMatch
		want  string
	}{
		{many, "rules ask for 65 different texts in the payload, at most 64 can be searched for"},
		{ir.PayloadMatch{At: make([]ir.At, 17)}, `rule "r": payload has 17 places, at most 16 fit`},
	} {
		program := &ir.Program{Rules: []ir.Rule{asks("r", test.match)}}
		if _, err := xdpgen.Generate(program, xdpgen.Options{}); err == nil || err.Error() != test.want {
			t.Errorf("error is %v, want %s", err, test.want)
		}
	}
	many.Any = append(many.Any[:64], many.Any[:10]...)
	program := &ir.Program{Rules: []ir.Rule{asks("r", many), asks("again", many)}}
	if _, err := xdpgen.Generate(program, xdpgen.Options{}); err != nil {
		t.Errorf("64 different patterns, some of them twice: %v", err)
	}
}
