// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// event is a line of the tests' output (test2json).
type event struct {
	Time    *time.Time `json:",omitempty"`
	Action  string
	Package string
	Test    string  `json:",omitempty"`
	Elapsed float64 `json:",omitempty"` // seconds
	Output  string  `json:",omitempty"`
}

// timed is the duration of a test or package.
type timed struct {
	name    string
	seconds float64
}

// events writes the output of several packages that run at the same time, line by line, in the form of `go test -json`.
type events struct {
	mu     sync.Mutex
	out    io.Writer
	used   []timed // CPU time that tests report (testutil.Inside)
	failed bool
	busy   strings.Builder // about tests that have passed only alone
}

// usedCPU matches the report of testutil.Inside.
var usedCPU = regexp.MustCompile(`CPU: (\d+\.\d+) s user, (\d+\.\d+) s system`)

// write writes events, without events of other packages between them.
func (s *events) write(list ...event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range list {
		s.line(e)
	}
}

func (s *events) line(e event) {
	if m := usedCPU.FindStringSubmatch(e.Output); m != nil {
		user, _ := strconv.ParseFloat(m[1], 64)
		system, _ := strconv.ParseFloat(m[2], 64)
		s.used = append(s.used, timed{e.Package[strings.LastIndex(e.Package, "/")+1:] + " " + e.Test, user + system})
	}
	s.failed = s.failed || e.Action == "fail"
	line, err := json.Marshal(e)
	if err == nil {
		_, err = s.out.Write(append(line, '\n'))
	}
	if err != nil { // the reader has closed its end
		s.failed = true
	}
}

// ended writes the last line of a package in the format of the go command, and its end event. The CPU time replaces the note about cached results.
func (s *events) ended(p *testPackage) {
	action, word := "pass", "ok  "
	if p.err != nil {
		action, word = "fail", "FAIL"
	}
	s.write(event{Action: "output", Package: p.ImportPath, Output: fmt.Sprintf("%s\t%s\t%.1fs\t%.1f s of CPU\n", word, p.ImportPath, p.took.Seconds(), p.cpu.Seconds())})
	s.write(event{Action: action, Package: p.ImportPath, Elapsed: p.took.Seconds()})
}

// passedAlone writes a test as one that passes, and notes the output of its failure for the summary.
func (s *events) passedAlone(p *testPackage, top string) {
	fmt.Fprintf(&s.busy, "%s %s\n", p.ImportPath, top)
	for _, e := range p.failed[top] {
		switch e.Action {
		case "output": // gotestsum would take it for the output of a failure
			fmt.Fprintf(&s.busy, "| %s\n", strings.TrimSuffix(e.Output, "\n"))
			continue
		case "fail":
			e.Action = "pass"
		}
		s.write(e)
	}
}

// summary returns the text about all tests: the tests with the most CPU time, and how many need root and did not run.
func (s *events) summary(named, needRoot int) string {
	var b strings.Builder
	slices.SortStableFunc(s.used, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	if len(s.used) > 0 {
		b.WriteString("\nThose that use most of the CPUs, of those in namespaces of their own:\n")
	}
	for _, t := range s.used[:min(named, len(s.used))] {
		fmt.Fprintf(&b, "%s %.2fs\n", t.name, t.seconds)
	}
	if s.busy.Len() > 0 {
		b.WriteString("\nThese tests failed beside other tests, and passed twice alone. Each is a defect of the test or of Floodwall:\n" + s.busy.String())
	}
	if needRoot > 0 {
		fmt.Fprintf(&b, "\n%d tests were not run, as they need root or a tool that is missing: `make test` runs them\n", needRoot)
	}
	return b.String()
}
