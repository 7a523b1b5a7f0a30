// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// programs is the directory of the test programs.
const programs = "build/tests"

// testPackage is a package that has tests.
type testPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string

	program string
	passed  []string // tests that have passed without root, so they need not run again
	skipped []string // skipped tests, and tests with a skipped subtest
	needing []string // skipped tests that need root or a tool

	held   map[string][]event // output of tests that have not ended, by the name of the test
	failed map[string][]event // output of tests that have failed as root

	err       error // of the last run
	complete  bool  // the last run has come to its end, so that every test has a result
	took, cpu time.Duration
}

// list finds the packages that have tests.
func list(patterns []string) (packages []*testPackage, err error) {
	if len(patterns) == 0 {
		patterns = []string{"work"} // all modules of go.work
	}
	text, err := output(append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(text))
	for {
		p := &testPackage{held: map[string][]event{}, failed: map[string][]event{}}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			packages = append(packages, p)
		}
	}
}

// build makes the test programs that are out of date. `go test -c` names each program after the last part of its package's path, so a second package
// with the same name gets another directory.
func build(packages []*testPackage) error {
	top, err := os.Getwd()
	if err != nil {
		return err
	}
	taken, groups := map[string]int{}, [][]string{}
	for _, p := range packages {
		name := path.Base(p.ImportPath)
		group := taken[name]
		taken[name]++
		if group == len(groups) {
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], p.ImportPath)
		p.program = filepath.Join(top, programs, strconv.Itoa(group), name+".test")
	}
	for group, paths := range groups {
		dir := filepath.Join(programs, strconv.Itoa(group))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if _, err := output(append([]string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", dir + "/"}, paths...)...); err != nil {
			return err
		}
	}
	return nil
}

// ordered moves the packages of a list to the front. The entries of the list are suffixes of package paths.
func ordered(packages []*testPackage, first string) []*testPackage {
	long := strings.Split(first, ",")
	place := func(p *testPackage) int {
		i := slices.IndexFunc(long, func(name string) bool { return name != "" && strings.HasSuffix(p.ImportPath, "/"+name) })
		if i < 0 {
			return len(long)
		}
		return i
	}
	return slices.SortedStableFunc(slices.Values(packages), func(a, b *testPackage) int { return place(a) - place(b) })
}

// unfinished returns the packages with tests that need root.
func unfinished(packages []*testPackage) (rest []*testPackage) {
	for _, p := range packages {
		if len(p.skipped) > 0 {
			rest = append(rest, p)
		}
	}
	return rest
}
