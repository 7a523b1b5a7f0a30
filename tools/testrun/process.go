package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
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
	args := append([]string{"-t", "-p", p.ImportPath}, rights(root)...)
	args = append(args, p.program, "-test.v=test2json", "-test.paniconexit0", "-test.timeout="+s.timeout.String(), fmt.Sprint("-test.parallel=", s.parallel))
	if s.pattern != "" {
		args = append(args, "-test.run="+s.pattern)
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
	begin := time.Now()
	err := s.follow(cmd, p, root)
	s.events.ended(p, err, time.Since(begin), cmd.ProcessState)
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
				s.events.write(e)
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

// first handles an event of a run without root. It writes the output of a test at the test's end. It writes nothing about a test that runs again as
// root, so that the test counts once.
func (s *session) first(p *testPackage, e event) {
	p.note(e)
	top, _, within := strings.Cut(e.Test, "/")
	if e.Test == "" {
		s.events.write(e)
		return
	}
	p.held[top] = append(p.held[top], e)
	if within || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return
	}
	if s.fast || e.Action == "fail" || !slices.Contains(p.skipped, top) {
		s.events.write(p.held[top]...)
	}
	delete(p.held, top)
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
