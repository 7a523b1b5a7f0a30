// SPDX-License-Identifier: Apache-2.0

package prove

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/prove/smt"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// planOf compiles a policy, and returns its plan for a target.
func planOf(file, text string, target plan.Target) (*plan.Plan, *control.Compiled, error) {
	p, err := policy.Parse(file, []byte(text))
	if err != nil {
		return nil, nil, err
	}
	compiled, err := control.Compile(p, feed.InState(os.TempDir()))
	if err != nil {
		return nil, nil, err
	}
	pl, err := compiled.Plan(target)
	return pl, compiled, err
}

// programOf returns the part of a policy that runs in XDP.
func programOf(file, text string) (*ir.Program, error) {
	pl, _, err := planOf(file, text, plan.TargetXDP)
	if err != nil {
		return nil, err
	}
	program, _ := pl.Only()
	return program, nil
}

// subjectOf compiles the part of a policy that runs in XDP.
func subjectOf(file, text string, loaded bool) (*Subject, error) {
	program, err := programOf(file, text)
	if err != nil {
		return nil, err
	}
	return Compile(program, loaded)
}

// limit is the time limit of z3 for a part of a proof.
const limit = 30 * time.Second

// proved proves a policy, and fails the test if a frame shows a difference between code and policy. It returns the number of parts that z3 gave up.
func proved(t *testing.T, name string, s *Subject) (gaveUp int) {
	t.Helper()
	r, err := s.Prove(context.Background(), smt.Limits{Time: limit}, func(r Result) {
		if os.Getenv("TRACE") != "" {
			t.Logf("%s %s %d terms %v %v", r.Kind, r.Answer, r.Terms, r.Time, r.CPU)
			fmt.Fprintln(os.Stderr, r.Kind, r.Answer, r.Terms, r.Time, r.CPU)
		}
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return judged(t, name, r)
}

// judged fails the test if a frame shows a difference between code and policy. It returns the number of parts that z3 gave up.
func judged(t *testing.T, name string, r *Report) (gaveUp int) {
	t.Helper()
	for i := range r.Parts {
		switch p := &r.Parts[i]; {
		case p.Answer == smt.Satisfiable:
			text, _ := Notation(p.Frame)
			t.Errorf("%s, %s: %s\n%x\n%s\nwhere %v", name, p.Kind, p.Why, p.Frame, text, p.State)
		case p.Answer == smt.Unknown:
			t.Logf("%s, %s: gave up after %v of a CPU: %s", name, p.Kind, p.CPU, p.Why)
			gaveUp++
		}
	}
	t.Logf("%s: %d rules, %v of a CPU for z3, %v altogether, %d given up", name, r.Rules, r.CPU.Round(time.Millisecond), r.Time.Round(time.Millisecond), gaveUp)
	return gaveUp
}

func requireSolver(t *testing.T) {
	t.Helper()
	if !smt.Available() {
		t.Skip(smt.ErrNoSolver)
	}
}

// short are policies of testdata/good that together use most parts of the entry, and are proved in seconds.
var short = []string{"checks.yaml", "replies.yaml", "never.yaml"}

// TestPolicies proves the good policies of the policy's tests. Without FLOODWALL_PROVE it proves only a few.
func TestPolicies(t *testing.T) {
	requireSolver(t)
	for _, d := range goodPolicies(t, short) {
		s, err := subjectOf(d.file, d.text, false)
		if err != nil { // the policy's lists are missing, or the policy is for another target
			t.Logf("%s is left out: %s", d.name(), strings.SplitN(err.Error(), "\n", 2)[0])
			continue
		}
		if proved(t, d.name(), s) > 0 {
			t.Errorf("%s is not proved", d.file)
		}
	}
}

// fences are the policies in a document.
func fences(text string) (list []string) {
	for {
		_, rest, ok := strings.Cut(text, "```yaml")
		if !ok {
			return list
		}
		_, rest, _ = strings.Cut(rest, "\n")
		fence, behind, _ := strings.Cut(rest, "```")
		list, text = append(list, fence), behind
	}
}

// document is a policy in a document, or in a file of its own.
type document struct {
	file   string
	number string // number of the policy in the document, after a blank
	text   string
}

func (d *document) name() string { return filepath.Base(d.file) + d.number }

// goodPolicies returns the good policies of the policy's tests. Without FLOODWALL_PROVE it returns only those whose names are in few.
func goodPolicies(t *testing.T, few []string) (list []document) {
	t.Helper()
	files, err := filepath.Glob("../../../policy/testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, f := range files {
		if os.Getenv("FLOODWALL_PROVE") == "" && !slices.Contains(few, filepath.Base(f)) {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, document{file: f, text: string(text)})
	}
	return list
}

// documents returns the policies in the documents and guides. Without FLOODWALL_PROVE it returns those of two documents.
func documents(t *testing.T) (list []document) {
	t.Helper()
	patterns := []string{"../../../README.md", "../../../docs/*.md", "../../../docs/guides/*.md", "../../../docs/design/*.md"}
	if os.Getenv("FLOODWALL_PROVE") == "" {
		patterns = []string{"../../../README.md", "../../../docs/guides/web-server.md"}
	}
	for _, pattern := range patterns {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for i, fence := range fences(string(text)) {
				list = append(list, document{f, fmt.Sprintf(" %d", i), fence})
			}
		}
	}
	return list
}

// TestDocuments proves the complete policies in the documents and guides. Without FLOODWALL_PROVE it proves those of two documents.
func TestDocuments(t *testing.T) {
	requireSolver(t)
	count := 0
	for _, d := range documents(t) {
		s, err := subjectOf(d.file, d.text, false)
		if err != nil {
			t.Logf("%s is left out: %s", d.name(), strings.SplitN(err.Error(), "\n", 2)[0])
			continue
		}
		count++
		if proved(t, d.name(), s) > 0 {
			t.Errorf("%s%s is not proved", d.file, d.number)
		}
	}
	if count == 0 {
		t.Error("no document has a policy")
	}
}

// TestRandomPolicies proves random policies. FLOODWALL_PROVE is their number; without it, one. One in six has some 100 to 200 rules.
func TestRandomPolicies(t *testing.T) {
	requireSolver(t)
	n, gaveUp := 1, 0
	if text := os.Getenv("FLOODWALL_PROVE"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	for i := range n {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		rules := 1 + r.IntN(10)
		if i%6 == 2 {
			rules = 150 + r.IntN(151) // a third of the rules contradict themselves, and are left out
		}
		w := &subject.Writer{Rand: r, Payload: i%2 == 1, Full: i%3 > 0}
		text, _ := w.Policy(t, rules)
		s, err := Compile(subject.Lower(t, text).Program, false)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		gaveUp += min(1, proved(t, fmt.Sprintf("random %d", i), s))
	}
	t.Logf("%d policies, of which %d are not proved in all parts", n, gaveUp)
}

// TestLoaded proves a policy as the kernel has translated it.
func TestLoaded(t *testing.T) {
	requireSolver(t)
	testutil.RequireRoot(t)
	s, err := subjectOf("policy.yaml", "devices: [eth0]\n"+mutated[1], true)
	if err != nil {
		t.Fatal(err)
	}
	if proved(t, "loaded", s) > 0 {
		t.Error("not proved")
	}
}

// TestLarge proves the tables and the code of 10,000 rules, and of a list of a million addresses. Without FLOODWALL_PROVE it uses a twentieth of both
// numbers.
func TestLarge(t *testing.T) {
	requireSolver(t)
	share := 20
	if os.Getenv("FLOODWALL_PROVE") != "" {
		share = 1
	}
	list := filepath.Join(t.TempDir(), "list.txt")
	f, err := os.Create(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := rig.RandomHosts(1_000_000 / share).Write(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"rules": "devices: [eth0]\nreplies: drop\nchecks: off\n" + rig.RulesPolicy(10_000/share),
		"list": "devices: [eth0]\ndefault: drop\nreplies: drop\nchecks: standard\nsets: {listed: {file: " + list + "}}\n" +
			"rules: [{name: listed, from: $listed, then: drop}, {name: web, port: tcp/443, then: pass}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			s, err := subjectOf("policy.yaml", text, false)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("compiled, and the tables proved, in %v: %d rules, %d addresses looked up", time.Since(start).Round(time.Millisecond), len(s.Program.Rules), s.world.classes.addresses)
			if proved(t, name, s) > 0 {
				t.Error("not proved")
			}
		})
	}
}
