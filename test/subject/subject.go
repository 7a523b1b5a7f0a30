package subject

import (
	"encoding/hex"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

var update = flag.Bool("update", false, "rewrite the expectations under testdata")

// QuestionKey lets the tests ask the programs that they load.
const QuestionKey = 0x5eed

// A subject is a policy under test: what it is compiled to, and what its dynamic sets hold.
type Subject struct {
	Policy  string
	Parsed  *policy.Policy
	Program *ir.Program
	Notes   []string
	Members map[int][]netip.Prefix // by the index of a dynamic set in program.Sets
}

// A probe is a packet, and what shall become of it.
type Probe struct {
	Name    string // the line it was made from, or hex
	Frame   []byte
	State   uint32 // of conntrack, which no frame tells
	Verdict ir.Verdict
	Slot    uint32 // of the counter, which stands for the reason
}

// Lower reads a policy, to which it adds a device, and `checks: off` when the policy says nothing of checks.
func Lower(t testing.TB, text string) *Subject {
	t.Helper()
	return LowerFile(t, "policy.yaml", text)
}

// LowerFile is Lower for a policy that is beside files.
func LowerFile(t testing.TB, file, text string) *Subject {
	t.Helper()
	p, err := policy.Parse(file, []byte(withHead(text)))
	if err != nil {
		t.Fatalf("%v\n%s", err, withHead(text))
	}
	program, notes, err := compile.Lower(p)
	if err != nil {
		t.Fatal(err)
	}
	return &Subject{Policy: text, Parsed: p, Program: program, Notes: notes, Members: map[int][]netip.Prefix{}}
}

func withHead(text string) string {
	if !strings.Contains(text, "checks:") {
		text += "\nchecks: off\n"
	}
	if !strings.Contains(text, "devices:") {
		text += "\ndevices: [eth0]\n"
	}
	return text
}

// Optimized is the subject after the passes.
func (s *Subject) Optimized() *Subject {
	out := *s
	var notes []string
	out.Program, notes = compile.Optimize(s.Program)
	out.Notes = append(out.Notes[:len(out.Notes):len(out.Notes)], notes...)
	return &out
}

// Unlimited is the subject without the limits of essential rules, which would depend on how fast packets are sent.
func (s *Subject) Unlimited() *Subject {
	out, program := *s, *s.Program
	out.Program = &program
	program.Rules = slices.DeleteFunc(slices.Clone(program.Rules), func(r ir.Rule) bool {
		return r.Kind == ir.RuleKindEssential && len(r.Over) > 0
	})
	return &out
}

// Insert puts prefixes, in one word, into the dynamic set of that name.
func (s *Subject) Insert(t testing.TB, set, prefixes string) {
	t.Helper()
	for i := range s.Program.Sets {
		if s.Program.Sets[i].Name == set && s.Program.Sets[i].Dynamic != nil {
			for _, p := range strings.Fields(prefixes) {
				s.Members[i] = append(s.Members[i], netip.MustParsePrefix(p))
			}
			return
		}
	}
	t.Fatalf("no dynamic set %s", set)
}

// Has reports whether a dynamic set has an address.
func (s *Subject) Has(set int, a netip.Addr) bool {
	for _, p := range s.Members[set] {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Packet is what Floodwall sees of a probe.
func (f Probe) Packet() packet.Packet {
	pkt := packet.Decode(f.Frame)
	pkt.Value[packet.State] = f.State
	return pkt
}

// Eval is what the program means for a packet.
func (s *Subject) Eval(f Probe) (ir.Verdict, ir.Reason) {
	pkt := f.Packet()
	return s.Program.Eval(&pkt, ir.World{Member: s.Has, Connections: open})
}

// open is how many connections the prefixes have that a rule counts by.
func open(r *ir.Rule, pkt *packet.Packet) int {
	var src, dst netip.Prefix
	if r.Connections.Src != nil {
		src = r.Connections.Src.Of(pkt.Src)
	}
	if r.Connections.Dst != nil {
		dst = r.Connections.Dst.Of(pkt.Dst)
	}
	return OpenConnections(src, dst)
}

// Answered is a probe with its answer: what Eval says is right.
func (s *Subject) Answered(f Probe) Probe {
	verdict, reason := s.Eval(f)
	f.Verdict, f.Slot = verdict, SlotOf(reason)
	return f
}

// SlotOf is the counter of a reason.
func SlotOf(r ir.Reason) uint32 {
	switch r.Kind {
	case ir.ReasonCheck:
		return uint32(r.Index)
	case ir.ReasonNotIP:
		return image.SlotNotIP
	case ir.ReasonRule:
		return image.SlotRules + uint32(r.Index)
	}
	return image.SlotDefault
}

// ReasonIn names what a counter stands for.
func (s *Subject) ReasonIn(slot uint32) string {
	switch rule := int(slot) - image.SlotRules; {
	case slot < uint32(packet.NumChecks):
		return packet.Check(slot).String()
	case slot == image.SlotNotIP:
		return "not-ip"
	case slot == image.SlotDefault:
		return "default"
	case rule >= 0 && rule < len(s.Program.Rules):
		return s.Program.Rules[rule].Name
	}
	return fmt.Sprintf("no reason: slot %d", slot)
}

// Cases reads lines of packets with a verdict and a reason, and fails the test where Eval, of the program as it is
// written or after the passes, says something else.
func (s *Subject) Cases(t testing.TB, lines string) (frames []Probe) {
	t.Helper()
	optimized := s.Optimized()
	for line := range strings.Lines(lines) {
		c, err := packet.ParseCase(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if c.Blank {
			continue
		}
		p := Probe{Name: c.Packet.String(), Frame: c.Packet.Frame(), State: c.Packet.Packet().Value[packet.State]}
		frames = append(frames, p)
		for _, form := range []*Subject{s, optimized} {
			verdict, reason := form.Eval(p)
			got := verdict.String() + " " + form.Program.ReasonName(reason)
			if want := c.Verdict + " " + c.Reason; got != want {
				t.Errorf("%s\n got %s\nwant %s\npolicy:\n%s", p.Name, got, want, s.Policy)
			}
		}
	}
	return frames
}

// Forms are the forms that a subject can be compiled to.
func (s *Subject) Forms(t testing.TB) (out []*xdpgen.Program) {
	t.Helper()
	if x, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: xdpgen.Straight, QuestionKey: QuestionKey}); err == nil {
		out = append(out, x)
	}
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: xdpgen.Tables, QuestionKey: QuestionKey})
	if err != nil {
		t.Fatalf("%v\npolicy:\n%s", err, s.Policy)
	}
	return append(out, x)
}

// Agree compiles the subject in every form, loads it, and compares verdict and reason of every frame with Eval's. Where
// programs cannot be loaded, the test is skipped after the compiler has run.
func (s *Subject) Agree(t *testing.T, frames []Probe) {
	t.Helper()
	forms := s.Forms(t)
	testutil.RequireRoot(t)
	for _, x := range forms {
		s.Compare(t, s.Load(t, x), string(x.Form), frames)
	}
}

// Load loads a compiled subject, and puts its members into the dynamic sets. The host has the Ethernet address of all frames.
func (s *Subject) Load(t testing.TB, x *xdpgen.Program) *datapath.Program {
	t.Helper()
	p, err := datapath.Load(&x.Image, nil)
	if err != nil {
		t.Fatalf("%s: %+v\npolicy:\n%s", x.Form, err, s.Policy)
	}
	t.Cleanup(p.Close)
	if len(x.Dynamic) > 0 {
		s.fill(t, x, p)
	}
	memory, release, err := p.Memory(image.HostEnds)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if ends := memory[image.HostEnds]; ends != nil {
		image.Ends{MACs: []net.HardwareAddr{packet.Destination()}}.Write(ends)
	}
	return p
}

// OpenDynamic opens the dynamic sets of a loaded program, until release is called.
func OpenDynamic(t testing.TB, p *datapath.Program) (sets *addrs.Dynamic, release func()) {
	t.Helper()
	memory, release, err := p.Memory(image.DynamicInfo, image.Dynamic, image.DynamicTexts, image.DynamicWhy, image.DynamicLengths)
	if err != nil {
		t.Fatal(err)
	}
	if sets, err = addrs.OpenDynamic(xdpgen.DynamicMemory(memory)); err != nil {
		release()
		t.Fatal(err)
	}
	return sets, release
}

func (s *Subject) fill(t testing.TB, x *xdpgen.Program, p *datapath.Program) {
	t.Helper()
	sets, release := OpenDynamic(t, p)
	defer release()
	for set, number := range x.Dynamic {
		for _, prefix := range s.Members[set] {
			if err := sets.Sets[number].Insert(addrs.Entry{Prefix: prefix}, 1); err != nil {
				t.Fatal(err)
			}
		}
		if s.Program.Sets[set].Dynamic.Local {
			sets.ShowOwn(s.Members[set])
		}
	}
}

// Asker is a loaded program, in either mode.
type Asker interface {
	AskAt(datapath.Question) (datapath.Answer, error)
}

// Paths count the frames that the generated entries decided, and those that were left to general(). All others were decided by
// both.
var Paths struct{ Entry, General atomic.Int64 }

// Compare asks a loaded program about frames, and shows the first few differences from Eval. What the entry decides is asked
// twice, as general() must decide the same.
func (s *Subject) Compare(t testing.TB, p Asker, what string, frames []Probe) {
	t.Helper()
	c := &comparison{TB: t, subject: s, program: p, what: what}
	for _, f := range frames {
		if entry := c.ask(s.Answered(f), datapath.Question{Frame: f.Frame}); !entry {
			Paths.General.Add(1)
			continue
		}
		Paths.Entry.Add(1)
		c.ask(s.Answered(f), datapath.Question{Frame: f.Frame, General: true})
	}
}

// comparison is that of a loaded program with Eval.
type comparison struct {
	testing.TB
	subject     *Subject
	program     Asker
	what        string
	differences int
}

// ask compares an answer, and reports whether the entry gave it.
func (c *comparison) ask(want Probe, q datapath.Question) (entry bool) {
	c.Helper()
	s := c.subject
	got, err := c.program.AskAt(q)
	if err != nil {
		c.Fatalf("%s: %s: %v", c.what, want.Name, err)
	}
	if got.Slot == want.Slot && ir.Verdict(got.Verdict) == want.Verdict {
		return got.Entry
	}
	if c.differences++; c.differences > 3 {
		c.Fatalf("%s: more differences", c.what)
	}
	c.Errorf("%s, entry %t: %s\n%x\n got %s %s\nwant %s %s\nmembers %v\npolicy:\n%s", c.what, got.Entry, want.Name, want.Frame,
		ir.Verdict(got.Verdict), s.ReasonIn(got.Slot), want.Verdict, s.ReasonIn(want.Slot), s.Members, Shortened(s.Policy))
	return got.Entry
}

// Shortened keeps a message readable: a long policy goes to a file.
func Shortened(text string) string {
	const most = 20_000
	if len(text) < most {
		return text
	}
	file := filepath.Join(os.TempDir(), "floodwall-failing-policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err.Error()
	}
	return "in " + file
}

// FramesOf makes probes of packets, one a line.
func FramesOf(t testing.TB, lines string) (frames []Probe) {
	t.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		spec, err := packet.Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		frames = append(frames, Probe{Name: line, Frame: spec.Frame()})
	}
	return frames
}

// CutEverywhere adds to frames each of them cut off at every byte that leaves an Ethernet header.
func CutEverywhere(frames []Probe) (out []Probe) {
	for _, f := range frames {
		for n := 14; n <= len(f.Frame); n++ {
			out = append(out, Probe{Name: fmt.Sprintf("%s, %d bytes", f.Name, n), Frame: f.Frame[:n:n]})
		}
	}
	return out
}

// RandomFrames draws packets that meet the hints.
func RandomFrames(r *rand.Rand, hints packet.Hints, n int) []Probe {
	frames := make([]Probe, n)
	for i := range frames {
		frame := packet.Random(r, hints)
		frames[i] = Probe{Frame: frame, Name: "random " + hex.EncodeToString(frame[:14])}
	}
	return frames
}

// Seeded returns a source of random numbers, and its seed.
func Seeded(t testing.TB) (r *rand.Rand, seed uint64) {
	t.Helper()
	seed = testutil.Seed(t)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// HasLocal reports whether a set has the addresses of the host.
func (s *Subject) HasLocal() bool {
	for _, set := range s.Program.Sets {
		if set.Dynamic != nil && set.Dynamic.Local {
			return true
		}
	}
	return false
}

// AgreeOnce is agree for policies without rules, which are the same in all forms.
func (s *Subject) AgreeOnce(t *testing.T, frames []Probe) {
	t.Helper()
	x := s.Forms(t)[0]
	testutil.RequireRoot(t)
	s.Compare(t, s.Load(t, x), "checks", frames)
}

// AllChecks switches every check on.
func AllChecks() string {
	text := "{profile: strict"
	for check := range packet.NumChecks {
		text += ", " + check.String() + ": on"
	}
	return text + "}"
}

// OwnAddresses are what the tests say are the host's own.
const OwnAddresses = "198.51.100.1/32 2606::99/128"

// CountsOf is what Eval says that each counter has after frames that come at once.
func (s *Subject) CountsOf(frames [][]byte, name func(ir.Reason) string) map[string]int {
	counts := map[string]int{}
	limiter := ir.NewLimiter(s.Program)
	world := ir.World{
		Member:  s.Has,
		Over:    func(limit int, pkt *packet.Packet) bool { return limiter.Over(limit, pkt, 0) },
		Observe: func(r ir.Reason) { counts[name(r)]++ },
	}
	for _, f := range frames {
		pkt := packet.Decode(f)
		_, reason := s.Program.Eval(&pkt, world)
		counts[name(reason)]++
	}
	delete(counts, "") // a default that is not counted
	return counts
}

// NamesOf names the counter of each reason.
func NamesOf(checks map[packet.Check]string, rules []string, other string) func(ir.Reason) string {
	return func(r ir.Reason) string {
		switch r.Kind {
		case ir.ReasonCheck:
			return checks[packet.Check(r.Index)]
		case ir.ReasonRule:
			return rules[r.Index]
		}
		return other
	}
}

// Early is the subject without placements.
func (s *Subject) Early() *Subject {
	out, program := *s, *s.Program
	program.Placement, program.Rules = "", slices.Clone(program.Rules)
	for i := range program.Rules {
		program.Rules[i].Placement = ""
	}
	out.Program = &program
	return &out
}

// LowerError is the error of a policy that can be read, but not lowered.
func LowerError(t *testing.T, file, text string) (*ir.Program, error) {
	t.Helper()
	p, err := policy.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	program, _, err := compile.Lower(p)
	return program, err
}

// AddrOf is an IPv4 address by its number.
func AddrOf(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// mostOpen is one more than the connections that prefixes have in a test at most.
const mostOpen = 4

// OpenConnections is how many connections two prefixes have, of which one may be none: some number that depends on each of their bits.
func OpenConnections(src, dst netip.Prefix) int {
	h := fnv.New32a()
	fmt.Fprint(h, src, dst)
	return int(h.Sum32()>>8) % mostOpen
}
