// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/compile/plan"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/testutil"
)

// Goldens checks each txtar archive under testdata. It compiles the archive's policy.yaml and compares the results with the sections of the archive:
// the notes, the optimized program, and the output of each target that has a section. It also checks the verdicts on the packets in the section
// packets. A line `form: tables` in the archive's comment selects this form of the XDP program. A line `insert: SET PREFIX…` adds prefixes to a
// dynamic set. With -update, Goldens rewrites all sections except policy.yaml and packets.
func Goldens(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("%d archives: %v", len(archives), err)
	}
	for _, file := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, file, a)
		})
	}
}

func golden(t *testing.T, file string, a *txtar.Archive) {
	s := Lower(t, Section(a, "policy.yaml"))
	form := Settings(t, s, string(a.Comment))
	frames := s.Cases(t, Section(a, "packets"))
	optimized := s.Optimized()
	notes := ""
	for _, n := range optimized.Notes {
		notes += n + "\n"
	}
	got := []txtar.File{
		{Name: "policy.yaml", Data: []byte(Section(a, "policy.yaml"))},
		{Name: "notes", Data: []byte(notes)},
		{Name: "ir", Data: []byte(optimized.Program.String())},
	}
	var x *xdpgen.Program
	if hasSection(a, "xdp") {
		var err error
		if x, err = xdpgen.Generate(optimized.Program, xdpgen.Options{Form: form, QuestionKey: QuestionKey}); err != nil {
			t.Fatal(err)
		}
		got = append(got, txtar.File{Name: "xdp", Data: []byte(x.Listing())})
	}
	for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
		if hasSection(a, string(target)) {
			program, _ := plan.For(optimized.Program, target)
			text, err := NetfilterTexts[target](program)
			if err != nil {
				text = err.Error() + "\n"
			}
			got = append(got, txtar.File{Name: string(target), Data: []byte(text)})
		}
	}
	got = append(got, txtar.File{Name: "packets", Data: []byte(Section(a, "packets"))})
	sameSections(t, file, a, got)
	if x != nil && !*update {
		t.Run("loaded", func(t *testing.T) {
			testutil.RequireRoot(t)
			optimized.Compare(t, optimized.Load(t, x), string(x.Form), frames)
		})
	}
}

// sameSections compares the sections of an archive with the results. With -update, it rewrites the sections instead.
func sameSections(t *testing.T, file string, a *txtar.Archive, got []txtar.File) {
	t.Helper()
	if *update {
		rewritten := txtar.Format(&txtar.Archive{Comment: a.Comment, Files: got})
		if err := os.WriteFile(file, rewritten, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, f := range got {
		if diff := cmp.Diff(Section(a, f.Name), string(f.Data)); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", f.Name, diff)
		}
	}
}

func hasSection(a *txtar.Archive, name string) bool {
	return slices.ContainsFunc(a.Files, func(f txtar.File) bool { return f.Name == name })
}

// Section returns the text of an archive's section, or "" if the archive has no such section.
func Section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// Settings parses an archive's comment. It returns the form of the XDP program, and adds prefixes to dynamic sets.
func Settings(t *testing.T, s *Subject, comment string) (form xdpgen.Form) {
	for line := range strings.Lines(comment) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "form":
			form = xdpgen.Form(value)
		case "insert":
			set, prefixes, _ := strings.Cut(value, " ")
			s.Insert(t, set, prefixes)
		}
	}
	return form
}

// NetfilterTexts has a function for each netfilter target. The function returns the output of the target for a program. Archives have this output in
// the section with the target's name.
var NetfilterTexts = map[plan.Target]func(*ir.Program) (string, error){plan.TargetNftables: nftText, plan.TargetIptables: iptText}

// Archives returns the paths of all archives of internal/compile and of the packages below it.
func Archives(t testing.TB) (files []string) {
	t.Helper()
	top := filepath.Join(testutil.Top(t), "internal/compile")
	for _, dir := range []string{top, filepath.Join(top, "*")} {
		found, err := filepath.Glob(filepath.Join(dir, "testdata/*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 30 {
		t.Fatalf("%d archives", len(files))
	}
	return files
}
