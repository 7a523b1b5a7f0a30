// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// namesProgram returns a program that drops queries for names of sets. It has one rule for each set.
func namesProgram(sets ...[]string) *ir.Program {
	p := &ir.Program{}
	for i, names := range sets {
		p.Names = append(p.Names, ir.NameSet{Name: fmt.Sprint("s", i), Names: names})
		p.Rules = append(p.Rules, ir.Rule{
			Name: fmt.Sprint("r", i), Verdict: ir.Drop, Match: []ir.Match{dnsPort(53)}, Names: []ir.NameMatch{{Sets: []int{i}}},
		})
	}
	return p
}

// asking returns a query for a name, which is in plain text.
func asking(t testing.TB, name string) subject.Probe {
	t.Helper()
	return subject.FramesOf(t, "udp 198.51.100.7:1000 > 192.0.2.1:53 dns=A,"+name+".")[0]
}

// TestNamesLarge tests a hundred thousand names, or a million with FLOODWALL_LONG=1. Each name and the names below it must be found. Other names must
// not be found. Eval would take too long. Instead, the form of a generated name shows whether the name is in the set.
func TestNamesLarge(t *testing.T) {
	t.Parallel()
	r, _ := subject.Seeded(t)
	n := 100_000
	if os.Getenv("FLOODWALL_LONG") != "" {
		n = 1_000_000
	}
	listed := make([]string, n)
	for i := range listed {
		listed[i] = fmt.Sprintf("h%x%s", i, []string{".example", ".a-domain.example", ".b.c.d.test"}[i%3])
	}
	s := programmed(namesProgram(listed))
	x := s.Forms(t)[0]
	testutil.RequireRoot(t)
	p := s.Load(t, x)
	for range n / testutil.Scaled(20, 5) {
		name := listed[r.IntN(n)]
		for _, test := range []struct {
			name string
			has  bool
		}{
			{name, true}, {strings.ToUpper(name), true}, {"www." + name, true}, {"x" + name, false}, {name + ".org", false},
			{name[strings.IndexByte(name, '.')+1:], false}, {name[1:], false},
		} {
			got, err := p.Ask(asking(t, test.name).Frame)
			if err != nil {
				t.Fatal(err)
			}
			if has := ir.Verdict(got.Verdict) == ir.Drop; has != test.has {
				t.Fatalf("%s: in the set is %v, want %v", test.name, has, test.has)
			}
		}
	}
}

// TestNameSets tests the largest number of sets. Most of their names are the same, and the root is one of them.
func TestNameSets(t *testing.T) {
	t.Parallel()
	r, _ := subject.Seeded(t)
	labels := []string{"a", "b", "example", "evil", strings.Repeat("x", 63), "seven77", "eight888", "-"}
	name := func(most int) string {
		words := make([]string, 1+r.IntN(most))
		for i := range words {
			words[i] = labels[r.IntN(len(labels))]
		}
		return strings.Join(words, ".")
	}
	sets := make([][]string, 32)
	for i := range sets {
		for range r.IntN(6) {
			if n := name(16); len(n) < 200 {
				sets[i] = append(sets[i], n)
			}
			sets[i] = append(sets[i], name(3))
		}
	}
	sets[31] = []string{""}
	// Random sets in random rules: the first rules test few sets.
	p := namesProgram(sets...)
	r.Shuffle(31, func(i, j int) { p.Rules[i], p.Rules[j] = p.Rules[j], p.Rules[i] })
	var frames []subject.Probe
	for range 5000 {
		n := name(3)
		if set := sets[r.IntN(31)]; len(set) > 0 && r.IntN(2) == 0 {
			n = set[r.IntN(len(set))]
		}
		if r.IntN(2) == 0 {
			n = name(4) + "." + n
		}
		if len(n) < 250 {
			frames = append(frames, asking(t, n))
		}
	}
	programmed(p).Agree(t, append(frames, subject.FramesOf(t, "udp 198.51.100.7:1000 > 192.0.2.1:53 dns=A,.")...))
}

// TestNamesLimits checks the errors for names and sets above the limits.
func TestNamesLimits(t *testing.T) {
	deep := strings.Repeat("a.", 16) + "a"
	for _, test := range []struct {
		program *ir.Program
		want    string
	}{
		{namesProgram(make([][]string, 33)...), "rules ask for 33 different sets of names, at most 32 can be told apart: merge some"},
		{namesProgram([]string{deep}), `set "s0": name ` + deep + " has 17 labels, at most 16 can be matched"},
		{namesProgram([]string{deep[2:]}), ""},
	} {
		_, err := xdpgen.Generate(test.program, xdpgen.Options{})
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("error is %v, want %s", err, test.want)
		}
	}
}
