// SPDX-License-Identifier: Apache-2.0

// Command testrun builds the tests of this module once, runs them, and writes their output as `go test -json` does.
//
//	testrun [-fast] [-first PACKAGE,PACKAGE] [-p N] [-parallel N] [-timeout TIME] [-run PATTERN] [-again N] [-slowest N] [-summary FILE] [PACKAGE...]
//
// It runs the tests twice. The first run is without root: tests that need root are skipped (testutil.RequireRoot). It takes less than a minute, and a
// failure ends testrun. The second run is as root, with FLOODWALL_TEST_ROOT=1. It runs only tests that have not passed yet. -fast ends after the
// first run. -again N tells whether a test failed because the machine was busy: if at most N tests failed as root, each runs twice more, alone. A test
// that passes both times is listed at the end as one that depends on time, and testrun succeeds. `go test` can do neither run without linking each program again, which takes longer than running most of them. The programs stay in
// build/tests, so the next run reuses those that have not changed. scripts/test prints the output with gotestsum.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// options are the options of the command line.
type options struct {
	fast     bool
	first    string // packages that take long, so they start first
	together int    // packages that run at the same time
	parallel int    // tests that run at the same time in each package
	timeout  time.Duration
	pattern  string // for the names of tests
	again    int    // the most failed tests that run again
	named    int    // how many of the tests with the most CPU time are listed
	summary  string // a file
}

func main() {
	var o options
	cpus := runtime.NumCPU()
	flag.BoolVar(&o.fast, "fast", false, "run only what needs no root")
	flag.StringVar(&o.first, "first", "", "packages that begin first, without the module's path, separated by commas")
	flag.IntVar(&o.together, "p", cpus+1, "how many packages run at the same time")
	flag.IntVar(&o.parallel, "parallel", 2*cpus, "how many tests of a package run at the same time")
	flag.DurationVar(&o.timeout, "timeout", time.Hour, "how long a package may take")
	flag.StringVar(&o.pattern, "run", "", "only tests of this name")
	flag.IntVar(&o.again, "again", 0, "how many failed tests may run again, alone")
	flag.IntVar(&o.named, "slowest", 10, "how many of the tests that use most of the CPUs are named")
	flag.StringVar(&o.summary, "summary", "", "a file for what is said at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, o, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "floodwall: error: tests: %v\n", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, patterns []string) (failed bool, err error) {
	packages, err := list(patterns)
	if err == nil {
		err = build(packages)
	}
	if err != nil {
		return true, err
	}
	tool, err := output("tool", "-n", "test2json")
	if err != nil {
		return true, err
	}
	written, needRoot := &events{out: os.Stdout}, 0
	s := session{options: o, events: written, converter: strings.TrimSpace(tool)}
	s.all(ctx, ordered(packages, o.first), o.together, false)
	switch rest := unfinished(packages); {
	case ctx.Err() != nil:
		return true, errors.New("interrupted")
	case written.failed:
	case o.fast:
		for _, p := range rest {
			needRoot += len(p.needing)
		}
	default:
		s.all(ctx, ordered(rest, o.first), o.together, true)
		s.repeat(ctx, rest)
	}
	if ctx.Err() != nil {
		return true, errors.New("interrupted")
	}
	if o.summary != "" {
		err = os.WriteFile(o.summary, []byte(written.summary(o.named, needRoot)), 0o644)
	}
	return written.failed, err
}

// output runs scripts/go and returns its output. The user sees its errors.
func output(args ...string) (string, error) {
	cmd := exec.Command("scripts/go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return string(out), nil
}
