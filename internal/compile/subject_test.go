package compile_test

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

// questionKey lets the tests ask the programs that they load.
const questionKey = 0x5eed

// A subject is a policy under test: what it is compiled to, and what its dynamic sets hold.
type subject struct {
	policy  string
	parsed  *policy.Policy
	program *ir.Program
	notes   []string
	members map[int][]netip.Prefix // by the index of a dynamic set in program.Sets
}

// A probe is a packet, and what shall become of it.
type probe struct {
	name    string // the line it was made from, or hex
	frame   []byte
	state   uint32 // of conntrack, which no frame tells
	verdict ir.Verdict
	slot    uint32 // of the counter, which stands for the reason
}

// lower reads a policy, to which it adds a device, and `checks: off` when the policy says nothing of checks.
func lower(t testing.TB, text string) *subject {
	t.Helper()
	return lowerFile(t, "policy.yaml", text)
}

func lowerFile(t testing.TB, file, text string) *subject {
	t.Helper()
	p, err := policy.Parse(file, []byte(withHead(text)))
	if err != nil {
		t.Fatalf("%v\n%s", err, withHead(text))
	}
	program, notes, err := compile.Lower(p)
	if err != nil {
		t.Fatal(err)
	}
	return &subject{policy: text, parsed: p, program: program, notes: notes, members: map[int][]netip.Prefix{}}
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

// optimized is the subject after the passes.
func (s *subject) optimized() *subject {
	out := *s
	var notes []string
	out.program, notes = compile.Optimize(s.program)
	out.notes = append(out.notes[:len(out.notes):len(out.notes)], notes...)
	return &out
}

// unlimited is the subject without the limits of essential rules, which would depend on how fast packets are sent.
func (s *subject) unlimited() *subject {
	out, program := *s, *s.program
	out.program = &program
	program.Rules = slices.DeleteFunc(slices.Clone(program.Rules), func(r ir.Rule) bool {
		return r.Kind == ir.RuleKindEssential && len(r.Over) > 0
	})
	return &out
}

// insert puts prefixes, in one word, into the dynamic set of that name.
func (s *subject) insert(t testing.TB, set, prefixes string) {
	t.Helper()
	for i := range s.program.Sets {
		if s.program.Sets[i].Name == set && s.program.Sets[i].Dynamic != nil {
			for _, p := range strings.Fields(prefixes) {
				s.members[i] = append(s.members[i], netip.MustParsePrefix(p))
			}
			return
		}
	}
	t.Fatalf("no dynamic set %s", set)
}

// has reports whether a dynamic set has an address.
func (s *subject) has(set int, a netip.Addr) bool {
	for _, p := range s.members[set] {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// packet is what Floodwall sees of a probe.
func (f probe) packet() packet.Packet {
	pkt := packet.Decode(f.frame)
	pkt.Value[packet.State] = f.state
	return pkt
}

// eval is what the program means for a packet.
func (s *subject) eval(f probe) (ir.Verdict, ir.Reason) {
	pkt := f.packet()
	return s.program.Eval(&pkt, ir.World{Member: s.has, Connections: open})
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
	return openConnections(src, dst)
}

// answered is a probe with its answer: what Eval says is right.
func (s *subject) answered(f probe) probe {
	verdict, reason := s.eval(f)
	f.verdict, f.slot = verdict, slotOf(reason)
	return f
}

// slotOf is the counter of a reason.
func slotOf(r ir.Reason) uint32 {
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

// reasonIn names what a counter stands for.
func (s *subject) reasonIn(slot uint32) string {
	switch rule := int(slot) - image.SlotRules; {
	case slot < uint32(packet.NumChecks):
		return packet.Check(slot).String()
	case slot == image.SlotNotIP:
		return "not-ip"
	case slot == image.SlotDefault:
		return "default"
	case rule >= 0 && rule < len(s.program.Rules):
		return s.program.Rules[rule].Name
	}
	return fmt.Sprintf("no reason: slot %d", slot)
}

// cases reads lines of packets with a verdict and a reason, and fails the test where Eval, of the program as it is
// written or after the passes, says something else.
func (s *subject) cases(t testing.TB, lines string) (frames []probe) {
	t.Helper()
	optimized := s.optimized()
	for line := range strings.Lines(lines) {
		c, err := packet.ParseCase(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if c.Blank {
			continue
		}
		p := probe{name: c.Packet.String(), frame: c.Packet.Frame(), state: c.Packet.Packet().Value[packet.State]}
		frames = append(frames, p)
		for _, form := range []*subject{s, optimized} {
			verdict, reason := form.eval(p)
			got := verdict.String() + " " + form.program.ReasonName(reason)
			if want := c.Verdict + " " + c.Reason; got != want {
				t.Errorf("%s\n got %s\nwant %s\npolicy:\n%s", p.name, got, want, s.policy)
			}
		}
	}
	return frames
}

// forms are the forms that a subject can be compiled to.
func (s *subject) forms(t testing.TB) (out []*xdpgen.Program) {
	t.Helper()
	if x, err := xdpgen.Generate(s.program, xdpgen.Options{Form: xdpgen.Straight, QuestionKey: questionKey}); err == nil {
		out = append(out, x)
	}
	x, err := xdpgen.Generate(s.program, xdpgen.Options{Form: xdpgen.Tables, QuestionKey: questionKey})
	if err != nil {
		t.Fatalf("%v\npolicy:\n%s", err, s.policy)
	}
	return append(out, x)
}

// agree compiles the subject in every form, loads it, and compares verdict and reason of every frame with Eval's. Where
// programs cannot be loaded, the test is skipped after the compiler has run.
func (s *subject) agree(t *testing.T, frames []probe) {
	t.Helper()
	forms := s.forms(t)
	testutil.RequireRoot(t)
	for _, x := range forms {
		s.compare(t, s.load(t, x), string(x.Form), frames)
	}
}

// load loads a compiled subject, and puts its members into the dynamic sets. The host has the Ethernet address of all frames.
func (s *subject) load(t testing.TB, x *xdpgen.Program) *datapath.Program {
	t.Helper()
	p, err := datapath.Load(&x.Image, nil)
	if err != nil {
		t.Fatalf("%s: %+v\npolicy:\n%s", x.Form, err, s.policy)
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

func (s *subject) fill(t testing.TB, x *xdpgen.Program, p *datapath.Program) {
	t.Helper()
	memory, release, err := p.Memory(image.DynamicInfo, image.Dynamic, image.DynamicTexts, image.DynamicWhy)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	sets, err := addrs.OpenDynamic(xdpgen.DynamicMemory(memory))
	if err != nil {
		t.Fatal(err)
	}
	for set, number := range x.Dynamic {
		var own []netip.Addr
		for _, prefix := range s.members[set] {
			if err := sets.Sets[number].Insert(addrs.Entry{Prefix: prefix}, 1); err != nil {
				t.Fatal(err)
			}
			if prefix.IsSingleIP() {
				own = append(own, prefix.Addr())
			}
		}
		if s.program.Sets[set].Dynamic.Local {
			sets.ShowOwn(own)
		}
	}
}

// asker is a loaded program, in either mode.
type asker interface {
	AskAt(datapath.Question) (datapath.Answer, error)
}

// paths count the frames that the generated entries decided, and those that were left to general(). All others were decided by
// both.
var paths struct{ entry, general atomic.Int64 }

// compare asks a loaded program about frames, and shows the first few differences from Eval. What the entry decides is asked
// twice, as general() must decide the same.
func (s *subject) compare(t testing.TB, p asker, what string, frames []probe) {
	t.Helper()
	c := &comparison{TB: t, subject: s, program: p, what: what}
	for _, f := range frames {
		if entry := c.ask(s.answered(f), datapath.Question{Frame: f.frame}); !entry {
			paths.general.Add(1)
			continue
		}
		paths.entry.Add(1)
		c.ask(s.answered(f), datapath.Question{Frame: f.frame, General: true})
	}
}

// comparison is that of a loaded program with Eval.
type comparison struct {
	testing.TB
	subject     *subject
	program     asker
	what        string
	differences int
}

// ask compares an answer, and reports whether the entry gave it.
func (c *comparison) ask(want probe, q datapath.Question) (entry bool) {
	c.Helper()
	s := c.subject
	got, err := c.program.AskAt(q)
	if err != nil {
		c.Fatalf("%s: %s: %v", c.what, want.name, err)
	}
	if got.Slot == want.slot && ir.Verdict(got.Verdict) == want.verdict {
		return got.Entry
	}
	if c.differences++; c.differences > 3 {
		c.Fatalf("%s: more differences", c.what)
	}
	c.Errorf("%s, entry %t: %s\n%x\n got %s %s\nwant %s %s\nmembers %v\npolicy:\n%s", c.what, got.Entry, want.name, want.frame,
		ir.Verdict(got.Verdict), s.reasonIn(got.Slot), want.verdict, s.reasonIn(want.slot), s.members, shortened(s.policy))
	return got.Entry
}

// shortened keeps a message readable: a long policy goes to a file.
func shortened(text string) string {
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

// framesOf makes probes of packets, one a line.
func framesOf(t testing.TB, lines string) (frames []probe) {
	t.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		spec, err := packet.Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		frames = append(frames, probe{name: line, frame: spec.Frame()})
	}
	return frames
}

// cutEverywhere adds to frames each of them cut off at every byte that leaves an Ethernet header.
func cutEverywhere(frames []probe) (out []probe) {
	for _, f := range frames {
		for n := 14; n <= len(f.frame); n++ {
			out = append(out, probe{name: fmt.Sprintf("%s, %d bytes", f.name, n), frame: f.frame[:n:n]})
		}
	}
	return out
}

// randomFrames draws packets that meet the hints.
func randomFrames(r *rand.Rand, hints packet.Hints, n int) []probe {
	frames := make([]probe, n)
	for i := range frames {
		frame := packet.Random(r, hints)
		frames[i] = probe{frame: frame, name: "random " + hex.EncodeToString(frame[:14])}
	}
	return frames
}

// seeded returns a source of random numbers, and its seed.
func seeded(t testing.TB) (r *rand.Rand, seed uint64) {
	t.Helper()
	seed = testutil.Seed(t)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

func (s *subject) hasLocal() bool {
	for _, set := range s.program.Sets {
		if set.Dynamic != nil && set.Dynamic.Local {
			return true
		}
	}
	return false
}

// agreeOnce is agree for policies without rules, which are the same in all forms.
func (s *subject) agreeOnce(t *testing.T, frames []probe) {
	t.Helper()
	x := s.forms(t)[0]
	testutil.RequireRoot(t)
	s.compare(t, s.load(t, x), "checks", frames)
}

// allChecks switches every check on.
func allChecks() string {
	text := "{profile: strict"
	for check := range packet.NumChecks {
		text += ", " + check.String() + ": on"
	}
	return text + "}"
}

// ownAddresses are what the tests say are the host's own.
const ownAddresses = "198.51.100.1/32 2606::99/128"

// countsOf is what Eval says that each counter has after frames that come at once.
func (s *subject) countsOf(frames [][]byte, name func(ir.Reason) string) map[string]int {
	counts := map[string]int{}
	limiter := ir.NewLimiter(s.program)
	world := ir.World{
		Member:  s.has,
		Over:    func(limit int, pkt *packet.Packet) bool { return limiter.Over(limit, pkt, 0) },
		Observe: func(r ir.Reason) { counts[name(r)]++ },
	}
	for _, f := range frames {
		pkt := packet.Decode(f)
		_, reason := s.program.Eval(&pkt, world)
		counts[name(reason)]++
	}
	delete(counts, "") // a default that is not counted
	return counts
}

func namesOf(checks map[packet.Check]string, rules []string, other string) func(ir.Reason) string {
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

// early is the subject without placements.
func (s *subject) early() *subject {
	out, program := *s, *s.program
	program.Placement, program.Rules = "", slices.Clone(program.Rules)
	for i := range program.Rules {
		program.Rules[i].Placement = ""
	}
	out.program = &program
	return &out
}

func lowerError(t *testing.T, file, text string) (*ir.Program, error) {
	t.Helper()
	p, err := policy.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	program, _, err := compile.Lower(p)
	return program, err
}

func addrOf(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// mostOpen is one more than the connections that prefixes have in a test at most.
const mostOpen = 4

// openConnections is how many connections two prefixes have, of which one may be none: some number that depends on each of their bits.
func openConnections(src, dst netip.Prefix) int {
	h := fnv.New32a()
	fmt.Fprint(h, src, dst)
	return int(h.Sum32()>>8) % mostOpen
}
