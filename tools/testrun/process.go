// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// session runs packages, several at the same time.
type session struct {
	options
	events    *events
	converter string // path of test2json
}

// all runs packages in their order, at most together at the same time.
func (s *session) all(ctx context.Context, packages []*testPackage, together int, root bool) {
	next := make(chan *testPackage)
	var running sync.WaitGroup
	for range together {
		running.Go(func() {
			for p := range next {
				s.one(ctx, p, root)
			}
		})
	}
	for _, p := range packages {
		if ctx.Err() == nil {
			next <- p
		}
	}
	close(next)
	running.Wait()
}

// rights returns the commands that set the rights of a test. Root without capabilities is as harmless as any other user, and can read root's files.
func rights(root bool) []string {
	switch user := os.Geteuid(); {
	case user == 0 && !root:
		return []string{"setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"}
	case user != 0 && root:
		return []string{"sudo", "-E"}
	}
	return nil
}

// one runs the tests of a package that have not passed yet.
func (s *session) one(ctx context.Context, p *testPackage, root bool) {
	cmd := s.command(ctx, p, root, s.pattern)
	begin := time.Now()
	p.err = s.follow(cmd, p, root)
	p.took, p.cpu = time.Since(begin), cpu(cmd.ProcessState)
	p.complete = cmd.ProcessState.ExitCode() < 2 // the exit code of a panic is 2
	if len(p.failed) == 0 {
		s.events.ended(p)
	}
}

// repeat handles the tests that have failed as root. If they are few, it runs each twice more, alone. It writes their output and the ends of their
// packages.
func (s *session) repeat(ctx context.Context, packages []*testPackage) {
	failed := 0
	for _, p := range packages {
		failed += len(p.failed)
	}
	for _, p := range packages {
		if len(p.failed) == 0 {
			continue
		}
		passed := 0
		for _, top := range slices.Sorted(maps.Keys(p.failed)) {
			if failed <= s.again && s.passesAlone(ctx, p, top) {
				passed++
				s.events.passedAlone(p, top)
			} else {
				s.events.write(p.failed[top]...)
			}
		}
		if passed == len(p.failed) && p.complete {
			p.err = nil
		}
		s.events.ended(p)
	}
}

// passesAlone runs a test twice, and reports whether it passes both times.
func (s *session) passesAlone(ctx context.Context, p *testPackage, top string) bool {
	for range 2 {
		if _, err := s.command(ctx, p, true, "^"+top+"$").Output(); err != nil {
			return false
		}
	}
	return true
}

// command returns the command that runs tests of a package: those whose names match a pattern and that have not passed yet.
func (s *session) command(ctx context.Context, p *testPackage, root bool, pattern string) *exec.Cmd {
	args := append([]string{"-t", "-p", p.ImportPath}, rights(root)...)
	args = append(args, p.program, "-test.v=test2json", "-test.paniconexit0", "-test.timeout="+s.timeout.String(), fmt.Sprint("-test.parallel=", s.parallel))
	if pattern != "" {
		args = append(args, "-test.run="+pattern)
	}
	if len(p.passed) > 0 {
		args = append(args, "-test.skip=^("+strings.Join(p.passed, "|")+")$")
	}
	cmd := exec.CommandContext(ctx, s.converter, args...)
	cmd.Dir = p.Dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FLOODWALL_TEST_ROOT=") })
	cmd.Env = append(cmd.Env, "PWD="+p.Dir)
	if root {
		cmd.Env = append(cmd.Env, "FLOODWALL_TEST_ROOT=1")
	}
	cmd.Stderr = os.Stderr
	return cmd
}

// follow reads the output of a package's tests until it ends.
func (s *session) follow(cmd *exec.Cmd, p *testPackage, root bool) error {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewReader(out)
	for {
		line, readErr := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil && (e.Test != "" || e.Action == "output") {
			if root { // the end of a package is written when its process has ended
				s.second(p, e)
			} else {
				s.first(p, e)
			}
		}
		if readErr != nil {
			break
		}
	}
	for _, held := range p.held { // tests without an end, because the process was killed
		s.events.write(held...)
	}
	return cmd.Wait()
}

// first handles an event of a run without root. It writes nothing about a test that runs again as root, so that the test counts once.
func (s *session) first(p *testPackage, e event) {
	p.note(e)
	if top, all := s.hold(p, e); all != nil && (s.fast || e.Action == "fail" || !slices.Contains(p.skipped, top)) {
		s.events.write(all...)
	}
}

// second handles an event of a run as root. It keeps the output of a test that fails for repeat.
func (s *session) second(p *testPackage, e event) {
	top, all := s.hold(p, e)
	if all != nil && e.Action == "fail" {
		p.failed[top] = all
		return
	}
	s.events.write(all...)
}

// hold holds the events of a test back until the test ends. Then it returns the name of the test and all its events, with those of its subtests. It
// writes an event of no test at once.
func (s *session) hold(p *testPackage, e event) (top string, all []event) {
	top, _, within := strings.Cut(e.Test, "/")
	if top == "" {
		if e.Output != "PASS\n" && e.Output != "FAIL\n" { // the result of the package is written with the event of its end
			s.events.write(e)
		}
		return "", nil
	}
	p.held[top] = append(p.held[top], e)
	if within || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return top, nil
	}
	all = p.held[top]
	delete(p.held, top)
	return top, all
}

// needs is part of the message of a test that is skipped because root or a tool is missing (testutil.RequireRoot).
const needs = "this test needs "

// note records which tests pass without root. A test ends after its subtests.
func (p *testPackage) note(e event) {
	top, _, within := strings.Cut(e.Test, "/")
	skipped := slices.Contains(p.skipped, top)
	switch {
	case e.Test == "":
	case e.Action == "output" && strings.Contains(e.Output, needs) && !slices.Contains(p.needing, top):
		p.needing = append(p.needing, top)
	case e.Action == "skip" && !skipped:
		p.skipped = append(p.skipped, top)
	case e.Action == "pass" && !within && !skipped:
		p.passed = append(p.passed, top)
	}
}

// cpu returns the CPU time of a process and of all child processes for which it waited.
func cpu(state *os.ProcessState) time.Duration {
	if state == nil {
		return 0
	}
	usage := state.SysUsage().(*syscall.Rusage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
