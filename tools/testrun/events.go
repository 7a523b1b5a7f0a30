package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// event is one line of what tests say (cmd/test2json).
type event struct {
	Time    *time.Time `json:",omitempty"`
	Action  string
	Package string
	Test    string  `json:",omitempty"`
	Elapsed float64 `json:",omitempty"` // seconds
	Output  string  `json:",omitempty"`
}

// timed is how long something took.
type timed struct {
	name    string
	seconds float64
}

// events writes what several packages say at the same time as `go test -json` does, one line after the other.
type events struct {
	mu     sync.Mutex
	out    io.Writer
	used   []timed // the time of CPUs that a test says it has used (testutil.Inside)
	failed bool
}

// usedCPU is what testutil.Inside says.
var usedCPU = regexp.MustCompile(`CPU: (\d+\.\d+) s user, (\d+\.\d+) s system`)

// write writes events, with none of other packages between them.
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
	if err != nil { // nobody reads it any more
		s.failed = true
	}
}

// ended writes the line of a package, as the go command has it, with the time of CPUs in place of whether results are old, and its end.
func (s *events) ended(p *testPackage, err error, took time.Duration, state *os.ProcessState) {
	action, word := "pass", "ok  "
	if err != nil {
		action, word = "fail", "FAIL"
	}
	s.write(event{Action: "output", Package: p.ImportPath, Output: fmt.Sprintf("%s\t%s\t%.1fs\t%.1f s of CPU\n", word, p.ImportPath, took.Seconds(), cpu(state).Seconds())})
	s.write(event{Action: action, Package: p.ImportPath, Elapsed: took.Seconds()})
}

// summary says what is of no single test: which have used most of the CPUs, and how many need root when these did not run.
func (s *events) summary(named, needRoot int) string {
	var b strings.Builder
	slices.SortStableFunc(s.used, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	if len(s.used) > 0 {
		b.WriteString("\nThose that use most of the CPUs, of those in namespaces of their own:\n")
	}
	for _, t := range s.used[:min(named, len(s.used))] {
		fmt.Fprintf(&b, "%s %.2fs\n", t.name, t.seconds)
	}
	if needRoot > 0 {
		fmt.Fprintf(&b, "\n%d tests were not run, as they need root or a tool that is missing: `make test` runs them\n", needRoot)
	}
	return b.String()
}
