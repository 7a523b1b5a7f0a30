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
)

// programs is the directory of what is built.
const programs = "build/tests"

// testPackage is a package that has tests.
type testPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string

	program string
	passed  []string // tests that have passed without root, and so need not run again
	skipped []string // those that are skipped, or that have one in them that is
	needing []string // those of them that need root or a tool

	held map[string][]event // what tests without root have said that have not ended, by the name of the test
}

// list finds the packages that have tests.
func list(patterns []string) (packages []*testPackage, err error) {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	text, err := output(append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(text))
	for {
		p := &testPackage{held: map[string][]event{}}
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

// build makes the programs that are not up to date. `go test -c` names each after the last part of its package's path, so a second package of a
// name goes to a second directory.
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

// ordered has the packages of a list, whose entries are the ends of their paths, begin first.
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

// unfinished are the packages with tests that need root.
func unfinished(packages []*testPackage) (rest []*testPackage) {
	for _, p := range packages {
		if len(p.skipped) > 0 {
			rest = append(rest, p)
		}
	}
	return rest
}
