// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// largest returns a policy with this number of static and dynamic sets, not counting the host's own addresses. Its rules use the sets in turn. Each
// key is used in at least one rule.
func largest(checks string, static, dynamic, rules int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "default: drop\nchecks: %s\nsets:\n", checks)
	for i := range static {
		fmt.Fprintf(&b, "  s%d: [10.%d.0.0/16, 10.%d.0.0/17, 192.0.2.%d, \"2001:db8:%x::/48\"]\n", i, i, i+1, i, i)
	}
	for i := range dynamic {
		fmt.Fprintf(&b, "  d%d: {dynamic: true, max: 1000}\n", i)
	}
	b.WriteString("rules:\n")
	keys := []string{"ttl: 7", "length: 60-70", "dscp: ef", "vlan: [1, 10-20]", "fragment: true", "proto: [gre, esp]",
		"family: ipv6", "sport: udp/53", "flags: \"syn/fin,syn,rst,ack\"", "icmp: echo-request", "to: $d0", "not: {to: [$d1, local]}",
		"to: local", "not: {sport: [1-10, 12]}"}
	for i := range rules {
		from := fmt.Sprintf("$s%d", i%static)
		if i%7 == 3 {
			from = fmt.Sprintf("[%s, $d%d]", from, i%dynamic)
		}
		fmt.Fprintf(&b, "  - {name: r%d, from: %s, %s, then: %s}\n", i, from, keys[i%len(keys)], []string{"pass", "drop"}[i%2])
	}
	return b.String()
}

// different returns rules. No two of them have an address or a port in common.
func different(rules int) string {
	var b strings.Builder
	b.WriteString("default: drop\nchecks: " + subject.AllChecks() + "\nrules:\n")
	for i := range rules {
		fmt.Fprintf(&b, "  - {name: r%d, from: [10.%d.%d.0/24, \"2001:db8:%x::/48\"], port: %d, then: %s}\n",
			i, i>>8, i&0xff, i, 1000+i, []string{"pass", "drop"}[i%2])
	}
	return b.String()
}

// TestVerifier loads the largest policies. The verifier must accept them with a large margin of instructions, and they must decide like Eval.
func TestVerifier(t *testing.T) {
	for _, test := range []struct {
		name, policy string
		form         xdpgen.Form
		long         bool // tested only in long runs, because another policy of the same form is larger
	}{
		{"checks and sets, straight", largest(subject.AllChecks(), 8, 7, 30), xdpgen.Straight, true},
		{"checks and sets, tables", largest(subject.AllChecks(), 8, 7, 30), xdpgen.Tables, true},
		{"64 expressions, 600 rules, straight", largest(subject.AllChecks(), 56, 7, 600), xdpgen.Straight, false},
		{"64 expressions, 600 rules, no checks, straight", largest("off", 56, 7, 600), xdpgen.Straight, false},
		{"64 expressions, 1000 rules, tables", largest(subject.AllChecks(), 56, 7, 1000), xdpgen.Tables, false},
		{"10,000 different rules", different(10_000), xdpgen.Tables, false},
	} {
		if test.long && !testutil.Long() {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			verify(t, test.policy, test.form)
		})
	}
}

// verify loads a policy in a form, and asks the loaded program about random packets.
func verify(t *testing.T, text string, form xdpgen.Form) {
	s := subject.Lower(t, text)
	w := &subject.Writer{Rand: rand.New(rand.NewPCG(1, 2))}
	for i := range s.Program.Sets {
		if s.Program.Sets[i].Dynamic != nil {
			s.Insert(t, s.Program.Sets[i].Name, fmt.Sprintf("172.%d.0.0/16 2001:db8:ffff:%x::/64", 16+i, i))
		}
	}
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: form, QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	testutil.RequireRoot(t)
	p := s.Load(t, x)
	n := verified(t, p)
	t.Logf("%d instructions in decide, %d processed", len(x.Decide), n)
	if n > subject.MostVerified {
		t.Errorf("the verifier processed %d instructions, want at most %d", n, subject.MostVerified)
	}
	hints := subject.RuleHints(s, w)
	var frames []subject.Probe
	for range testutil.Scaled(1000, 3000) {
		frames = append(frames, subject.RandomFrames(w.Rand, hints[w.IntN(len(hints))], 1)...)
	}
	s.CompareHooks(t, p, string(form), frames)
}

// processed loads a program, and returns the number of instructions that the verifier processed.
func processed(t *testing.T, x *xdpgen.Program) int {
	t.Helper()
	p, err := datapath.Load(&x.Image, nil)
	if refused := (*ebpf.VerifierError)(nil); errors.As(err, &refused) {
		t.Fatalf("%v\n%s", err, strings.Join(refused.Log[max(0, len(refused.Log)-30):], "\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return verified(t, p)
}

// verified returns the number of instructions that the verifier processed when a program was loaded.
func verified(t *testing.T, p *datapath.Program) int {
	t.Helper()
	info, err := p.Native().Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok {
		t.Fatal("this kernel does not say how many instructions the verifier processed")
	}
	return int(n)
}

// TestAutomaticForm checks which form the compiler chooses by default. It must choose straight code for few rules. It must choose tables for many
// rules, and for rules that do not fit into straight code.
func TestAutomaticForm(t *testing.T) {
	for _, test := range []struct {
		name, policy string
		want         xdpgen.Form
	}{
		{"none", "", xdpgen.Straight},
		{"two", "rules: [{name: a, port: 1, then: drop}, {name: b, from: 10.0.0.0/8, then: drop}]", xdpgen.Straight},
		{"many", different(500), xdpgen.Tables},
		{"65 expressions", largest("off", 65, 2, 65), xdpgen.Tables},
	} {
		x, err := xdpgen.Generate(subject.Lower(t, test.policy).Program, xdpgen.Options{})
		if err != nil || x.Form != test.want {
			t.Errorf("%s: form is %v, %v, want %s", test.name, x, err, test.want)
		}
	}
}

// TestTooMuch checks that a policy that is too large to compile causes an error, and is not truncated.
func TestTooMuch(t *testing.T) {
	s := subject.Lower(t, largest("off", 65, 2, 65))
	_, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: xdpgen.Straight})
	if want := "89 rules with 65 address expressions do not fit straight code"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}

// TestSlots checks rules whose counter slots the loader chooses.
func TestSlots(t *testing.T) {
	s := subject.Lower(t, "rules: [{name: a, ttl: 1, then: drop}, {name: b, from: 10.0.0.0/8, then: pass}, {name: c, ttl: 3, then: drop}]")
	slots := []uint32{900, 64, 5000}
	for _, form := range []xdpgen.Form{xdpgen.Straight, xdpgen.Tables} {
		x, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: form, Slots: slots, QuestionKey: subject.QuestionKey})
		if err != nil {
			t.Fatal(err)
		}
		if x.Slots != 5001 {
			t.Errorf("%s: %d slots, want 5001", form, x.Slots)
		}
		testutil.RequireRoot(t)
		p := s.Load(t, x)
		for i, f := range subject.FramesOf(t, "udp 8.8.8.8:5 > 1.1.1.1:5 ttl=1\nudp 10.0.0.1:5 > 1.1.1.1:5\nudp 8.8.8.8:5 > 1.1.1.1:5 ttl=3") {
			if got, err := p.Ask(f.Frame); err != nil || got.Slot != slots[i] {
				t.Errorf("%s: %s: %+v, %v, want slot %d", form, f.Name, got, err, slots[i])
			}
		}
	}
}

// TestUnreadableFile checks that mistakes in all list files are reported together, each with its set.
func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/bad.txt", []byte("192.0.2.1\nnonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/long.txt", []byte("192.0.2.1\n192.0.2.3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := subject.LowerError(t, dir+"/p.yaml", `devices: [eth0]
sets:
  bad: {file: bad.txt}
  long: {file: long.txt, max: 1}
  none: {file: none.txt}
`)
	for _, want := range []string{`p.yaml:3:3: set "bad": `, "bad.txt:2: ", `p.yaml:4:3: set "long": `, "max is 1",
		`p.yaml:5:3: set "none": `, "no such file"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s in it", err, want)
		}
	}
}

// TestDynamicLimit checks that the host's own addresses count as one of the dynamic sets.
func TestDynamicLimit(t *testing.T) {
	text := "devices: [eth0]\nchecks: {profile: off, own-source: on}\nsets:\n"
	for i := range 8 {
		text += fmt.Sprintf("  d%d: {dynamic: true, max: 5}\n", i)
	}
	_, err := subject.LowerError(t, "p.yaml", text)
	if want := "p.yaml:11:3: 9 dynamic sets (own addresses included), at most 8 can be used\n  hint: merge some"; err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
}
