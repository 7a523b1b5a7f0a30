// SPDX-License-Identifier: Apache-2.0

package boot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// listLines is the number of lines of a list. It is large enough for several writes, and small enough for quick tests.
const listLines = 4000

// source writes a policy and its list. Both contain the version, the list in every line. It returns them in the form in which apply passes them to
// the store.
func source(t testing.TB, dir, version string) boot.Source {
	t.Helper()
	list := strings.Repeat("192.0.2.1 # "+version+"\n", listLines)
	write(t, filepath.Join(dir, "blocked.txt"), list)
	return read(t, filepath.Join(dir, "policy.yaml"), `# `+version+`
devices: [eth0]
sets:
  blocked: {file: blocked.txt}
rules:
  - {name: listed, from: $blocked, then: drop}
`)
}

// read writes a policy to a file and parses it.
func read(t testing.TB, file, text string) boot.Source {
	t.Helper()
	write(t, file, text)
	p, err := policy.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return boot.Source{Policy: p, Text: []byte(text), Options: boot.Options{BPFFS: "/sys/fs/bpf/floodwall"}}
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func stage(t testing.TB, s boot.Store, src boot.Source) *boot.Staged {
	t.Helper()
	st, err := s.Stage(context.Background(), src)
	if err != nil {
		t.Fatalf("stage: %v", err)
	}
	return st
}

// save saves a policy as the current one, and returns the name of its copy.
func save(t testing.TB, s boot.Store, src boot.Source) string {
	t.Helper()
	st := stage(t, s, src)
	if err := st.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	return st.ID()
}

// comesBack returns the version of the policy that would be loaded at boot, or "" if there is none. It returns an error if the policy or the list is
// incomplete, or if their versions differ.
func comesBack(s boot.Store) (string, error) {
	saved, err := s.Load()
	if errors.Is(err, boot.ErrNone) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	p, err := saved.Policy()
	if err != nil {
		return "", err
	}
	list, err := os.ReadFile(p.Sets[0].File)
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(saved.Text), "\n")
	version := strings.TrimPrefix(first, "# ")
	if want := strings.Repeat("192.0.2.1 # "+version+"\n", listLines); string(list) != want {
		return "", fmt.Errorf("the list beside policy %s has %d bytes, want %d of that version", version, len(list), len(want))
	}
	return version, nil
}

func wantBack(t testing.TB, s boot.Store, want string) {
	t.Helper()
	got, err := comesBack(s)
	if err != nil || got != want {
		t.Fatalf("policy %q comes back (%v), want %q", got, err, want)
	}
	if s.Enabled() != (want != "") {
		t.Fatalf("enabled is %v, and policy %q comes back", s.Enabled(), want)
	}
}

func TestCopyOutlivesEdits(t *testing.T) {
	dir, s := t.TempDir(), boot.Open(t.TempDir())
	wantBack(t, s, "")
	src := source(t, dir, "one")
	src.Options = boot.Options{Target: "auto", Mode: "generic", Devices: []string{"eth1"}, BPFFS: "/b"}
	save(t, s, src)
	source(t, dir, "edited")
	wantBack(t, s, "one")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	wantBack(t, s, "one")
	saved, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(src.Options, saved.Options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if saved.File != src.Policy.File || string(saved.Text) != string(src.Text) {
		t.Errorf("the copy is of %s:\n%s", saved.File, saved.Text)
	}
}

// TestNamesOfLists saves lists with all forms of names that a policy can use.
func TestNamesOfLists(t *testing.T) {
	dir, s := t.TempDir(), boot.Open(t.TempDir())
	files := map[string]string{ // name in the policy: path of the file
		"here.txt":                         "etc/here.txt",
		"./dotted.txt":                     "etc/dotted.txt",
		"below/list.txt":                   "etc/below/list.txt",
		"../above.txt":                     "above.txt",
		"a name, with: spaces.txt":         "etc/a name, with: spaces.txt",
		"link.txt":                         "etc/behind-link.txt",
		filepath.Join(dir, "absolute.txt"): "absolute.txt",
		"boot.json":                        "etc/boot.json", // names that the store itself uses
		"list1":                            "etc/list1",
	}
	text := "devices: [eth0]\nsets:\n"
	n := 0
	for name, at := range files {
		write(t, filepath.Join(dir, at), at)
		text += fmt.Sprintf("  s%d: {file: %q}\n  t%d: {file: %q}\n", n, name, n, name)
		n++
	}
	if err := os.Symlink("behind-link.txt", filepath.Join(dir, "etc/link.txt")); err != nil {
		t.Fatal(err)
	}
	src := read(t, filepath.Join(dir, "etc/policy.yaml"), text)
	save(t, s, src)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	saved, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	p, err := saved.Policy()
	if err != nil {
		t.Fatal(err)
	}
	for i, set := range p.Sets {
		content, err := os.ReadFile(set.File)
		if want := files[src.Policy.Sets[i].File]; err != nil || string(content) != want {
			t.Errorf("set %s: %q (%v), want %q", set.Name, content, err, want)
		}
	}
}

// TestTrial makes a sequence of changes with policies that must be confirmed. Each line has a change, and the policy that would be loaded at boot
// after it.
func TestTrial(t *testing.T) {
	dir, s := t.TempDir(), boot.Open(t.TempDir())
	ids := map[string]string{}
	for _, line := range []string{
		"hold A: ",
		"use A: A",
		"hold B: A",
		"use A: A", // rolled back
		"use B: A", // too late: B has been removed
		"hold C: A",
		"hold D: A", // instead of C
		"use C: A",
		"use D: D",
		"use A: A", // rolled back after it was confirmed
		"use D: D", // and forward again
		"commit E: E",
		"commit F: F",
		"use D: F", // D has been removed
		"hold G: F",
		"commit H: H", // ends the trial
		"use G: H",
		"hold I: H",
		"discard J: H", // a failed apply does not change the trial
		"use I: I",
	} {
		what, want, _ := strings.Cut(line, ": ")
		verb, version, _ := strings.Cut(what, " ")
		if verb == "use" {
			if err := s.Use(context.Background(), ids[version]); err != nil && !errors.Is(err, boot.ErrGone) {
				t.Fatalf("%s: %v", line, err)
			}
		} else {
			st := stage(t, s, source(t, dir, version))
			ids[version] = st.ID()
			if err := map[string]func() error{
				"hold": st.Hold, "commit": st.Commit, "discard": func() error { st.Discard(); return nil },
			}[verb](); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		t.Log(line)
		wantBack(t, s, want)
	}
}

// TestSpace makes many copies. Copies that are no longer needed must be removed.
func TestSpace(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	s := boot.Open(state)
	for i := range 10 {
		save(t, s, source(t, dir, fmt.Sprint(i)))
	}
	copies, _ := filepath.Glob(filepath.Join(state, "boot", "c"+strings.Repeat("[0-9a-f]", 16)))
	if len(copies) != 2 {
		t.Errorf("after 10 policies there are %d copies: %v", len(copies), copies)
	}
	if err := s.Remove(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantBack(t, s, "")
	if left, _ := os.ReadDir(state); len(left) != 0 {
		t.Errorf("left after remove: %v", left)
	}
	if err := s.Remove(context.Background()); err != nil {
		t.Errorf("remove of nothing: %v", err)
	}
}

// TestUse checks that Use refuses a text that is not the name of a copy, because the name becomes part of a path.
func TestUse(t *testing.T) {
	s := boot.Open(t.TempDir())
	save(t, s, source(t, t.TempDir(), "one"))
	for _, id := range []string{"", ".", "current", ".", "c0123456789abcdef", "/etc"} {
		if err := s.Use(context.Background(), id); !errors.Is(err, boot.ErrGone) {
			t.Errorf("use of %q: %v, want ErrGone", id, err)
		}
	}
	wantBack(t, s, "one")
}

// TestOneAtATime checks that between Stage and the end of a change, no other process can change the current copy.
func TestOneAtATime(t *testing.T) {
	dir, s := t.TempDir(), boot.Open(t.TempDir())
	one := stage(t, s, source(t, dir, "one"))
	soon, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Stage(soon, source(t, dir, "two")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second stage: %v, want that it waits", err)
	}
	done := make(chan error)
	two := source(t, dir, "two")
	go func() {
		st, err := s.Stage(context.Background(), two)
		if err == nil {
			err = st.Commit()
		}
		done <- err
	}()
	one.Discard()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantBack(t, s, "two")
}

// TestLoadWhileItChanges loads continuously while other processes save.
func TestLoadWhileItChanges(t *testing.T) {
	dir, s := t.TempDir(), boot.Open(t.TempDir())
	save(t, s, source(t, dir, "0"))
	stop := make(chan struct{})
	done := make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := s.Load(); err != nil {
				done <- err
				return
			}
		}
	}()
	for i := range testutil.Scaled(20, 50) {
		save(t, s, source(t, dir, fmt.Sprint(i)))
	}
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("load: %v", err)
	}
}

func TestVerify(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, list, text string){
		"other text": func(t *testing.T, list, text string) { write(t, list, strings.ToUpper(text)) },
		"longer":     func(t *testing.T, list, text string) { write(t, list, text+"192.0.2.2\n") },
		"shorter":    func(t *testing.T, list, text string) { write(t, list, text[:len(text)-1]) },
		"empty":      func(t *testing.T, list, text string) { write(t, list, "") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			st := stage(t, boot.Open(t.TempDir()), source(t, dir, "one"))
			defer st.Discard()
			if err := st.Verify(context.Background()); err != nil {
				t.Fatalf("before: %v", err)
			}
			list := filepath.Join(dir, "blocked.txt")
			text, _ := os.ReadFile(list)
			change(t, list, string(text))
			var changed *boot.ChangedError
			if err := st.Verify(context.Background()); !errors.As(err, &changed) || changed.File != list {
				t.Errorf("after: %v, want that %s changed", err, list)
			}
		})
	}
}

// TestNoList has policies whose lists cannot be copied. The error must name the place, and the store must not change.
func TestNoList(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	s := boot.Open(state)
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ file, want string }{
		{"missing.txt", `policy.yaml:3:3: set "blocked": stat DIR/missing.txt: no such file or directory`},
		{".", `policy.yaml:3:3: set "blocked": DIR is not a regular file, so it cannot be saved for boot`},
		{"pipe", `policy.yaml:3:3: set "blocked": DIR/pipe is not a regular file, so it cannot be saved for boot`},
		{"/dev/zero", `policy.yaml:3:3: set "blocked": /dev/zero is not a regular file, so it cannot be saved for boot`},
	} {
		file := filepath.Join(dir, "policy.yaml")
		src := read(t, file, fmt.Sprintf("devices: [eth0]\nsets:\n  blocked: {file: %q}\n", row.file))
		_, err := s.Stage(context.Background(), src)
		if err == nil || err.Error() != filepath.Join(dir, strings.ReplaceAll(row.want, "DIR", dir)) {
			t.Errorf("stage: %v, want %s", err, row.want)
		}
		if left, _ := os.ReadDir(filepath.Join(state, "boot")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
		save(t, s, source(t, dir, "one"))
		if _, err := s.Stage(context.Background(), src); err == nil {
			t.Error("there is no error when another policy is saved")
		}
		wantBack(t, s, "one")
		s.Remove(context.Background())
	}
}

// TestOthersCannotWrite checks that a directory is refused if another user may have written a policy into it.
func TestOthersCannotWrite(t *testing.T) {
	for name, open := range map[string]func(dir string) error{
		"can be written by others": func(dir string) error { return os.Chmod(dir, 0o777) },
		"is not a directory": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-moved"), os.Symlink(dir+"-moved", dir))
		},
		"belongs to user 12345": func(dir string) error { return os.Chown(dir, 12345, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			s := boot.Open(state)
			src := source(t, t.TempDir(), "one")
			save(t, s, src)
			dir := filepath.Join(state, "boot")
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Fatalf("the directory: %v (%v), want mode 0700", info, err)
			}
			if err := open(dir); errors.Is(err, os.ErrPermission) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Load(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("load: %v, want that it %s", err, name)
			}
			if _, err := s.Stage(context.Background(), src); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("stage: %v, want that it %s", err, name)
			}
		})
	}
}

// TestOtherInstance checks that an instance cannot replace the saved policy of another instance.
func TestOtherInstance(t *testing.T) {
	s, src := boot.Open(t.TempDir()), source(t, t.TempDir(), "one")
	save(t, s, src)
	src.Options.BPFFS = "/sys/fs/bpf/other"
	_, err := s.Stage(context.Background(), src)
	var other *boot.OtherInstanceError
	if !errors.As(err, &other) || other.BPFFS != "/sys/fs/bpf/floodwall" {
		t.Errorf("stage: %v, want an OtherInstanceError", err)
	}
	wantBack(t, s, "one")
}

// TestDamaged changes copies, as a failing disk or a person may do. Loading them must return an error, and never an incomplete policy.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(copy string) error{
		"no list":      func(copy string) error { return os.Remove(filepath.Join(copy, "list1")) },
		"no policy":    func(copy string) error { return os.Remove(filepath.Join(copy, "policy.yaml")) },
		"no manifest":  func(copy string) error { return os.Remove(filepath.Join(copy, "boot.json")) },
		"cut manifest": func(copy string) error { return os.Truncate(filepath.Join(copy, "boot.json"), 20) },
		"cut list":     func(copy string) error { return os.Truncate(filepath.Join(copy, "list1"), 20) },
		"cut policy":   func(copy string) error { return os.Truncate(filepath.Join(copy, "policy.yaml"), 30) },
		"new format": func(copy string) error {
			return os.WriteFile(filepath.Join(copy, "boot.json"), []byte(`{"format": 2}`), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			s, src := boot.Open(state), source(t, t.TempDir(), "one")
			if err := damage(filepath.Join(state, "boot", save(t, s, src))); err != nil {
				t.Fatal(err)
			}
			if saved, err := s.Load(); err == nil || errors.Is(err, boot.ErrNone) {
				t.Errorf("load: %v, %v, want an error", saved, err)
			}
			save(t, s, src) // replaces the damaged copy
			wantBack(t, s, "one")
		})
	}
}
