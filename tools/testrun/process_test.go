// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// stream has a test that passes, a test with a subtest, a test that fails, and a test whose package ends before it does.
const stream = `{"Action":"output","Package":"m/a","Test":"TestFine","Output":"    inside.go:77: CPU: 1.25 s user, 0.50 s system\n"}
{"Action":"pass","Package":"m/a","Test":"TestFine","Elapsed":3}
{"Action":"pass","Package":"m/a","Test":"TestMany/one","Elapsed":4}
{"Action":"pass","Package":"m/a","Test":"TestMany","Elapsed":0.1}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"wrong\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad","Elapsed":7}
{"Action":"output","Package":"m/b","Test":"TestCut","Output":"panic: no more\n"}
`

// read reads a stream.
func read(t *testing.T, text string) (list []event) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// TestEvents handles packages that write output at the same time. Each must have a line for its end, and tests that use much CPU time must be listed.
func TestEvents(t *testing.T) {
	var out strings.Builder
	s := &events{out: &out}
	for _, e := range read(t, stream) {
		s.write(e)
	}
	if !s.failed {
		t.Error("a test that fails is forgotten")
	}
	s.ended(&testPackage{ImportPath: "m/a", took: 3100 * time.Millisecond})
	s.ended(&testPackage{ImportPath: "m/b", took: 8 * time.Second, err: errors.New("exit status 1")})
	want := stream + `{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t3.1s\t0.0 s of CPU\n"}
{"Action":"pass","Package":"m/a","Elapsed":3.1}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b\t8.0s\t0.0 s of CPU\n"}
{"Action":"fail","Package":"m/b","Elapsed":8}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	const summary = "\nThose that use most of the CPUs, of those in namespaces of their own:\na TestFine 1.75s\n" +
		"\n2 tests were not run, as they need root or a tool that is missing: `make test` runs them\n"
	if got := s.summary(10, 2); got != summary {
		t.Errorf("got %q, want %q", got, summary)
	}
}

// TestNote checks which tests need not run as root: the tests that passed completely. A test with a skipped subtest is not one of them. Only a skip
// because root or a tool is missing counts.
func TestNote(t *testing.T) {
	p := new(testPackage)
	for _, e := range read(t, `{"Action":"pass","Test":"TestFine"}
{"Action":"pass","Test":"TestMany/one"}
{"Action":"output","Test":"TestMany/two","Output":"    x_test.go:1: this test needs root\n"}
{"Action":"skip","Test":"TestMany/two"}
{"Action":"pass","Test":"TestMany"}
{"Action":"output","Test":"TestRoot","Output":"    x_test.go:1: this test needs root\n"}
{"Action":"skip","Test":"TestRoot"}
{"Action":"output","Test":"TestLong","Output":"    x_test.go:1: set FLOODWALL_LONG=1\n"}
{"Action":"skip","Test":"TestLong"}
{"Action":"pass","Test":"TestWhole/part"}
{"Action":"pass","Test":"TestWhole"}
{"Action":"pass"}
`) {
		p.note(e)
	}
	for what, list := range map[string][2][]string{
		"passed":  {p.passed, {"TestFine", "TestWhole"}},
		"skipped": {p.skipped, {"TestMany", "TestRoot", "TestLong"}},
		"needing": {p.needing, {"TestMany", "TestRoot"}},
	} {
		if !slices.Equal(list[0], list[1]) {
			t.Errorf("%s: %q, want %q", what, list[0], list[1])
		}
	}
}

// TestFirst handles tests without root. A test that runs again as root must not be written, because it would count twice. With -fast it must be
// written, and a failed test must always be written.
func TestFirst(t *testing.T) {
	const fine = `{"Action":"run","Package":"m/a","Test":"TestFine"}
{"Action":"pass","Package":"m/a","Test":"TestFine"}
`
	const again = `{"Action":"run","Package":"m/a","Test":"TestMany"}
{"Action":"skip","Package":"m/a","Test":"TestMany/one"}
{"Action":"pass","Package":"m/a","Test":"TestMany"}
{"Action":"skip","Package":"m/a","Test":"TestRoot"}
`
	const bad = `{"Action":"skip","Package":"m/a","Test":"TestBad/one"}
{"Action":"fail","Package":"m/a","Test":"TestBad"}
{"Action":"output","Package":"m/a","Output":"coverage: 1%\n"}
`
	for fast, want := range map[bool]string{false: fine + bad, true: fine + again + bad} {
		var out strings.Builder
		s := session{options: options{fast: fast}, events: &events{out: &out}}
		p := &testPackage{held: map[string][]event{}}
		for _, e := range read(t, fine+again+bad) {
			s.first(p, e)
		}
		if out.String() != want || !s.events.failed || len(p.held) > 0 {
			t.Errorf("-fast=%t: got\n%s\nwant\n%s", fast, out.String(), want)
		}
	}
}

// TestOrdered checks that packages that take long come first, in the given order. A name is a suffix of a path that starts after a slash.
func TestOrdered(t *testing.T) {
	var list []*testPackage
	for _, path := range []string{"m/a", "m/lab", "m/x/cmd", "m/collab", "m/b"} {
		list = append(list, &testPackage{ImportPath: path})
	}
	var got []string
	for _, p := range ordered(list, "cmd,lab") {
		got = append(got, p.ImportPath)
	}
	if want := []string{"m/x/cmd", "m/lab", "m/a", "m/collab", "m/b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRepeat runs a failed test again. It must fail when the test fails again, when too many tests have failed, and when a panic has ended the package.
// A file tells the programs of this test whether they run for the first time.
func TestRepeat(t *testing.T) {
	testutil.RequireRoot(t) // without root, sudo would run the programs
	for _, test := range []struct {
		name, program string
		again         int
		failed        bool
	}{
		{"passes alone", `if [ -e again ]; then echo "--- PASS: TestX (0.00s)"; echo PASS; exit 0; fi`, 1, false},
		{"fails again", ``, 1, true},
		{"too many fail", `if [ -e again ]; then echo "--- PASS: TestX (0.00s)"; echo PASS; exit 0; fi`, 0, true},
		{"a panic", `if [ -e again ]; then echo "--- PASS: TestX (0.00s)"; echo PASS; exit 0; fi; echo "--- FAIL: TestX (0.00s)"; exit 2`, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "x.test")
			script := "#!/bin/sh\n" + test.program + "\necho '=== RUN   TestX'; touch again; echo '--- FAIL: TestX (0.00s)'; echo FAIL; exit 1\n"
			if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			tool, err := exec.Command("go", "tool", "-n", "test2json").Output()
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			s := session{options: options{again: test.again}, events: &events{out: &out}, converter: strings.TrimSpace(string(tool))}
			p := &testPackage{ImportPath: "m/x", Dir: dir, program: program, held: map[string][]event{}, failed: map[string][]event{}}
			s.one(t.Context(), p, true)
			s.repeat(t.Context(), []*testPackage{p})
			if s.events.failed != test.failed {
				t.Errorf("failed is %t, want %t:\n%s", s.events.failed, test.failed, out.String())
			}
			if says := strings.Contains(s.events.summary(0, 0), "m/x TestX\n"); says == test.failed {
				t.Errorf("the summary names the test: %t:\n%s", says, s.events.summary(0, 0))
			}
		})
	}
}
