// Command testreport reads what `go test -json` writes and prints what a reader wants of it: the output of tests that fail as
// they fail, then the ten slowest tests, and last the test runner's own line for each package. It fails when any test does.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is one line of the stream (cmd/test2json, `go help buildjson`).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of what is built, in place of Package
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// timed is how long a test took.
type timed struct {
	name    string
	seconds float64
}

// report is what has been read so far.
type report struct {
	out      io.Writer
	output   map[string][]string // of tests that have not ended, by package and test
	verdicts []string            // the line of each package
	times    []timed
	failed   bool
}

func main() {
	r := &report{out: os.Stdout, output: map[string][]string{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintf(os.Stderr, "floodwall: error: test report: %v\n", err)
		os.Exit(1)
	}
	if r.finish(); r.failed {
		os.Exit(1)
	}
}

// read takes in the stream, and passes on lines that are no events.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			fmt.Fprint(r.out, line)
		default:
			r.add(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.failed = true
	case "output":
		if e.Test == "" && isVerdict(e.Output) {
			r.verdicts = append(r.verdicts, e.Output)
			fmt.Fprint(r.out, e.Output)
			return
		}
		r.output[key] = append(r.output[key], e.Output)
	case "pass", "skip":
		r.time(e)
		delete(r.output, key)
	case "fail":
		r.time(e)
		r.failed = true
		r.show(e, key)
	}
}

// isVerdict tells the line with which the test runner ends a package.
func isVerdict(output string) bool {
	return slices.ContainsFunc([]string{"ok  \t", "FAIL\t", "---\t", "?   \t"}, func(prefix string) bool { return strings.HasPrefix(output, prefix) })
}

// time notes a test that has ended. Of one that has others in it, these count: they may have run beside each other, and it does not
// say how long it waited for them. They end before it.
func (r *report) time(e event) {
	if e.Test == "" {
		return
	}
	name := e.Package[strings.LastIndex(e.Package, "/")+1:] + " " + e.Test
	if !slices.ContainsFunc(r.times, func(t timed) bool { return strings.HasPrefix(t.name, name+"/") }) {
		r.times = append(r.times, timed{name, e.Elapsed})
	}
}

// show prints what a failed test or package has said, with that of the tests in it that have not ended.
func (r *report) show(e event, key string) {
	for _, k := range slices.Sorted(maps.Keys(r.output)) {
		if k == key || e.Test == "" && strings.HasPrefix(k, e.Package+" ") {
			fmt.Fprint(r.out, strings.Join(r.output[k], ""))
			delete(r.output, k)
		}
	}
}

// slowest is how many tests are named.
const slowest = 10

// finish prints the slowest tests, and once more the packages.
func (r *report) finish() {
	slices.SortStableFunc(r.times, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	fmt.Fprintf(r.out, "\nThe slowest tests:\n")
	for _, t := range r.times[:min(slowest, len(r.times))] {
		fmt.Fprintf(r.out, "%8.1f s  %s\n", t.seconds, t.name)
	}
	fmt.Fprintln(r.out)
	for _, v := range r.verdicts {
		fmt.Fprint(r.out, v)
	}
	if r.failed {
		fmt.Fprintln(r.out, "FAIL")
	}
}
