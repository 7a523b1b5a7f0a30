package compile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/testutil"
	"github.com/floodwall/floodwall/internal/xdp"
)

// TestGolden compares, for each archive under testdata, the notes, the program after the passes and the listing that its
// policy.yaml gives with those in the archive, and the packets with what becomes of them. A line `form: tables` in the
// archive's comment asks for that form; a line `insert: SET PREFIX…` fills a dynamic set. -update rewrites the archives,
// but for policy and packets.
func TestGolden(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) < 12 {
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
	s := lower(t, section(a, "policy.yaml"))
	form := settings(t, s, string(a.Comment))
	frames := s.cases(t, section(a, "packets"))
	optimized := s.optimized()
	x, err := compile.ToXDP(optimized.program, compile.XDPOptions{Form: form, QuestionKey: questionKey})
	if err != nil {
		t.Fatal(err)
	}
	notes := ""
	for _, n := range optimized.notes {
		notes += n + "\n"
	}
	got := []txtar.File{
		{Name: "policy.yaml", Data: []byte(section(a, "policy.yaml"))},
		{Name: "notes", Data: []byte(notes)},
		{Name: "ir", Data: []byte(optimized.program.String())},
		{Name: "xdp", Data: []byte(x.Listing())},
		{Name: "packets", Data: []byte(section(a, "packets"))},
	}
	if *update {
		rewritten := txtar.Format(&txtar.Archive{Comment: a.Comment, Files: got})
		if err := os.WriteFile(file, rewritten, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, f := range got {
		if diff := cmp.Diff(section(a, f.Name), string(f.Data)); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", f.Name, diff)
		}
	}
	testutil.RequireRoot(t)
	optimized.compare(t, optimized.load(t, x), string(x.Form), frames)
}

func section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// settings reads the archive's comment.
func settings(t *testing.T, s *subject, comment string) (form compile.Form) {
	for line := range strings.Lines(comment) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "form":
			form = compile.Form(value)
		case "insert":
			set, prefixes, _ := strings.Cut(value, " ")
			s.insert(t, set, prefixes)
		}
	}
	return form
}

// TestListingNamesAll checks that a listing leaves nothing out that is loaded, and hides what is secret.
func TestListingNamesAll(t *testing.T) {
	s := lower(t, `
checks: strict
sets: {office: [203.0.113.0/24, "2001:db8::/48"], bans: {dynamic: true, max: 5}}
rules: [{from: [$office, $bans], to: $office, then: drop}]
`)
	for _, x := range s.forms(t) {
		listing := x.Listing()
		for name := range x.Constants {
			if !strings.Contains(listing, "  "+name+" ") {
				t.Errorf("%s: constant %s is missing", x.Form, name)
			}
		}
		for name := range x.Shapes {
			if !strings.Contains(listing, "  "+name+" ") {
				t.Errorf("%s: map %s is missing", x.Form, name)
			}
		}
		if exits, want := strings.Count(listing, " exit\n"), countExits(&x.Image); exits != want {
			t.Errorf("%s: %d exits, want %d", x.Form, exits, want)
		}
		for _, secret := range []string{fmt.Sprint(questionKey), fmt.Sprintf("%#x", questionKey)} {
			if strings.Contains(listing, secret) {
				t.Errorf("%s: the key %s of questions is in the listing", x.Form, secret)
			}
		}
	}
}

func countExits(im *xdp.Image) (n int) {
	for _, ins := range im.Decide {
		if ins.OpCode == 0x95 { // BPF_JMP | BPF_EXIT
			n++
		}
	}
	return n
}
