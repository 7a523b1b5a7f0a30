// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// shell is a shell that runs one command after the other.
type shell struct {
	in  io.Writer
	out *bufio.Reader
	end func()
}

// patience is the longest time that a command may take. It allows for a busy machine.
const patience = 2 * time.Minute

// newShell starts a shell in a directory. The shell ends with the test.
func newShell(t *testing.T, dir, command string, args ...string) *shell {
	t.Helper()
	cmd := exec.Command(command, args...)
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{in, bufio.NewReader(out), func() { cmd.Process.Kill() }}
	t.Cleanup(func() {
		in.Close()
		s.end()
		cmd.Wait()
	})
	return s
}

// inner returns a new shell that runs command in the network namespace and the directory of this shell. A separate process is needed because this
// shell can run only one command at a time.
func (s *shell) inner(t *testing.T, command string) *shell {
	t.Helper()
	pid := strings.TrimSpace(s.must(t, "echo $$"))
	dir := strings.TrimSpace(s.must(t, "pwd"))
	return newShell(t, dir, "nsenter", "--net=/proc/"+pid+"/ns/net", "sh", "-c", command)
}

const endMark = "-- end of the command, status"

// run runs a command, and returns its output on standard output and standard error, and its exit status.
func (s *shell) run(t *testing.T, command string) (out string, status int) {
	t.Helper()
	fmt.Fprintf(s.in, "{ %s\n} </dev/null; printf '\\n%%s %%d\\n' '%s' $?\n", command, endMark)
	late := time.AfterFunc(patience, s.end)
	defer late.Stop()
	for {
		line, err := s.out.ReadString('\n')
		if rest, ok := strings.CutPrefix(line, endMark); ok {
			fmt.Sscan(rest, &status)
			return strings.TrimSuffix(out, "\n"), status
		}
		out += line
		if err != nil {
			t.Fatalf("%s: the shell ended: %v\n%s", command, err, out)
		}
	}
}

// must runs a command that must succeed, and returns its output.
func (s *shell) must(t *testing.T, command string) string {
	t.Helper()
	out, status := s.run(t, command)
	if status != 0 {
		t.Fatalf("%s: exit status %d\n%s", command, status, out)
	}
	return out
}
