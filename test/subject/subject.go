// SPDX-License-Identifier: Apache-2.0

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

// QuestionKey is the key that a test must send with each question to a loaded program.
const QuestionKey = 0x5eed

// A Subject is a policy under test, with its compiled form and the content of its dynamic sets.
type Subject struct {
	Policy  string
	Parsed  *policy.Policy
	Program *ir.Program
	Notes   []string
	Members map[int][]netip.Prefix // contents of the dynamic sets, by the index in Program.Sets
}

// A Probe is a packet with its expected verdict.
type Probe struct {
	Name    string // the line from which the packet was made, or hex
	Frame   []byte
	State   uint32 // the packet's state in conntrack, which is not in the frame
	Verdict ir.Verdict
	Slot    uint32 // number of the counter, which identifies the reason
}

// Lower parses a policy and compiles it to an ir.Program. It adds a device. If the policy has no checks, it adds `checks: off`.
func Lower(t testing.TB, text string) *Subject {
	t.Helper()
	return LowerFile(t, "policy.yaml", text)
}

// LowerFile is like Lower, but for a policy that refers to files.
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

// Optimized returns a copy of the subject with the optimized program.
func (s *Subject) Optimized() *Subject {
	out := *s
	var notes []string
	out.Program, notes = compile.Optimize(s.Program)
	out.Notes = append(out.Notes[:len(out.Notes):len(out.Notes)], notes...)
	return &out
}

// Unlimited returns a copy of the subject without the essential rules that have a limit. The verdicts of these rules would depend on the speed at
// which a test sends packets.
func (s *Subject) Unlimited() *Subject {
	out, program := *s, *s.Program
	out.Program = &program
	program.Rules = slices.DeleteFunc(slices.Clone(program.Rules), func(r ir.Rule) bool {
		return r.Kind == ir.RuleKindEssential && len(r.Over) > 0
	})
	return &out
}

// Insert adds prefixes, separated by spaces, to the dynamic set with the given name.
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

// Has reports whether a dynamic set contains an address.
func (s *Subject) Has(set int, a netip.Addr) bool {
	for _, p := range s.Members[set] {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Packet returns the probe as Floodwall decodes it.
func (f Probe) Packet() packet.Packet {
	pkt := packet.Decode(f.Frame)
	pkt.Value[packet.State] = f.State
	return pkt
}

// Eval returns the verdict of the program on a packet, and the reason.
func (s *Subject) Eval(f Probe) (ir.Verdict, ir.Reason) {
	pkt := f.Packet()
	return s.Program.Eval(&pkt, ir.World{Member: s.Has, Connections: open})
}

// open returns the number of open connections that a rule counts for a packet. The number is that of OpenConnections.
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

// Answered returns a probe with the verdict and the counter that Eval expects.
func (s *Subject) Answered(f Probe) Probe {
	verdict, reason := s.Eval(f)
	f.Verdict, f.Slot = verdict, SlotOf(reason)
	return f
}

// SlotOf returns the number of a reason's counter.
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

// ReasonIn returns the name of the reason that has the counter with the given number.
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

// Cases parses lines, each with a packet, a verdict and a reason. It fails the test unless Eval returns this verdict and reason for the program. It
// checks the original program and the optimized one.
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

// Forms compiles the subject to each form of the XDP program that is possible for it.
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

// Agree compiles the subject in every form and loads it. For every frame, it compares the verdict and the reason of the loaded program with those of
// Eval. If the test cannot load programs (RequireRoot), Agree skips the test after it has compiled the subject.
func (s *Subject) Agree(t *testing.T, frames []Probe) {
	t.Helper()
	forms := s.Forms(t)
	testutil.RequireRoot(t)
	for _, x := range forms {
		s.CompareHooks(t, s.Load(t, x), string(x.Form), frames)
	}
}

// Load loads a compiled subject, and fills its dynamic sets. It sets the host's Ethernet address to the destination address of all frames.
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

// OpenDynamic opens the dynamic sets of a loaded program. The sets are valid until the caller calls release.
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

// Shortened returns a policy for an error message. If the policy is long, it writes it to a file and returns the name of the file, so that the
// message stays readable.
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

// FramesOf makes probes from lines, each with a packet.
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

// CutEverywhere returns copies of each frame, truncated to every length from that of an Ethernet header to the frame's full length.
func CutEverywhere(frames []Probe) (out []Probe) {
	for _, f := range frames {
		for n := 14; n <= len(f.Frame); n++ {
			out = append(out, Probe{Name: fmt.Sprintf("%s, %d bytes", f.Name, n), Frame: f.Frame[:n:n]})
		}
	}
	return out
}

// RandomFrames draws n random packets. The packets often have values from hints.
func RandomFrames(r *rand.Rand, hints packet.Hints, n int) []Probe {
	frames := make([]Probe, n)
	for i := range frames {
		frame := packet.Random(r, hints)
		frames[i] = Probe{Frame: frame, Name: "random " + hex.EncodeToString(frame[:14])}
	}
	return frames
}

// Seeded returns a source of random numbers and its seed.
func Seeded(t testing.TB) (r *rand.Rand, seed uint64) {
	t.Helper()
	seed = testutil.Seed(t)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// HasLocal reports whether the subject has a set of the host's addresses.
func (s *Subject) HasLocal() bool {
	for _, set := range s.Program.Sets {
		if set.Dynamic != nil && set.Dynamic.Local {
			return true
		}
	}
	return false
}

// AgreeOnce is like Agree, but for policies without rules. The programs of such policies are the same in all forms, so AgreeOnce loads only one of
// them.
func (s *Subject) AgreeOnce(t *testing.T, frames []Probe) {
	t.Helper()
	x := s.Forms(t)[0]
	testutil.RequireRoot(t)
	s.Compare(t, s.Load(t, x), "checks", frames)
}

// AllChecks returns the value of the key checks that enables every check.
func AllChecks() string {
	text := "{profile: strict"
	for check := range packet.NumChecks {
		text += ", " + check.String() + ": on"
	}
	return text + "}"
}

// OwnAddresses are the addresses that tests use as the host's own.
const OwnAddresses = "198.51.100.1/32 2606::99/128"

// CountsOf returns the value that each counter must have, according to Eval, after frames that all arrive at the same time. The function name returns
// the name of a reason's counter.
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
	delete(counts, "") // a default that has no counter
	return counts
}

// NamesOf returns a function that maps a reason to the name of its counter.
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

// Early returns a copy of the subject whose rules have no placements.
func (s *Subject) Early() *Subject {
	out, program := *s, *s.Program
	program.Placement, program.Rules = "", slices.Clone(program.Rules)
	for i := range program.Rules {
		program.Rules[i].Placement = ""
	}
	out.Program = &program
	return &out
}

// LowerError parses a policy, which must succeed. It returns the program and the error of compile.Lower.
func LowerError(t *testing.T, file, text string) (*ir.Program, error) {
	t.Helper()
	p, err := policy.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	program, _, err := compile.Lower(p)
	return program, err
}

// AddrOf returns the IPv4 address whose 32-bit value is n.
func AddrOf(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// mostOpen is one more than the maximum result of OpenConnections.
const mostOpen = 4

// OpenConnections returns the number of connections between two prefixes for which the tests pretend to be open. One prefix may be the zero prefix.
// The number is a hash, so that it depends on every bit of the prefixes.
func OpenConnections(src, dst netip.Prefix) int {
	h := fnv.New32a()
	fmt.Fprint(h, src, dst)
	return int(h.Sum32()>>8) % mostOpen
}
