// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestQuiet runs a command without a demonstration, in a terminal that answers nothing. A package that sends a query to the terminal when it is
// imported would make every command do so, and wait.
func TestQuiet(t *testing.T) {
	command := program(t)
	master, slave := openTerminal(t, 80, 24)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, command, "version")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.Env = append(os.Environ(), "TERM=xterm-256color", "COLORTERM=truecolor", "CI=", "NO_COLOR=")
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	err := c.Run()
	slave.Close()
	got := readTerminal(t, master)
	if err != nil {
		t.Errorf("%v (%v)", err, ctx.Err())
	}
	if !regexp.MustCompile(`^floodwall [^ \x1b]+ \(go[^ \x1b]+, linux/[a-z0-9]+\)\r\n$`).MatchString(got) {
		t.Errorf("the terminal was sent %q, want the line of the version", got)
	}
}

// TestLive shows a demonstration in a terminal that becomes wider during the demonstration.
func TestLive(t *testing.T) {
	for _, noColor := range []string{"", "1"} {
		t.Run("NO_COLOR="+noColor, func(t *testing.T) { testLive(t, noColor) })
	}
}

func testLive(t *testing.T, noColor string) {
	master, slave := openTerminal(t, 60, 20)
	before := settings(t, slave)
	env := map[string]string{"TERM": "xterm", "NO_COLOR": noColor}
	fmt.Fprintln(slave, "$ floodwall-lab demo")
	v := NewViewer(slave, func(name string) string { return env[name] })
	line := strings.Repeat("x", 70)
	v.Policy(line)
	got := readUntil(t, master, "  "+line[:58]+"\r\n")
	setSize(t, slave, 80, 24)
	if err := unix.Kill(unix.Getpid(), unix.SIGWINCH); err != nil { // the terminal is not this process's own
		t.Fatal(err)
	}
	got += readUntil(t, master, line)
	v.Phase(quiet, phaseNames[quiet])
	v.Moment(busyMoment(quiet))
	got += readUntil(t, master, "60 answered")
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if after := settings(t, slave); after != before {
		t.Errorf("settings of the terminal %+v, were %+v", after, before)
	}
	slave.Close()
	got += readTerminal(t, master)
	if shown := replay(t, got); !slices.Equal(shown, []string{"$ floodwall-lab demo", ""}) {
		t.Errorf("%q is left on the terminal", shown)
	}
	if styled := regexp.MustCompile("\x1b\\[[0-9]*m").MatchString(got); styled != (noColor == "") {
		t.Errorf("there are styles: %v, in %q", styled, got)
	}
}

// TestScreen draws views one after the other. At the end there may only be the last one, below the earlier content.
func TestScreen(t *testing.T) {
	views := []string{"one\n", "one\ntwo\nthree\n", "\x1b[1mo\x1b[m\n\nt\n", "", "last\n"}
	for i, last := range views {
		var out strings.Builder
		out.WriteString("above\n")
		s := &screen{out: &out}
		for _, view := range views[:i+1] {
			if err := s.draw(view, 80); err != nil {
				t.Fatal(err)
			}
		}
		want := strings.Split("above\n"+strings.NewReplacer("\x1b[1m", "", "\x1b[m", "").Replace(last), "\n")
		if got := replay(t, out.String()); !slices.Equal(got, want) {
			t.Errorf("after %q the terminal shows %q", views[:i+1], got)
		}
	}
}

// TestScreenNarrower checks the case of a terminal that has become narrower, and has wrapped lines that no longer fit.
func TestScreenNarrower(t *testing.T) {
	for _, tt := range []struct{ width, up int }{{80, 3}, {60, 4}, {40, 4}, {39, 5}, {20, 6}} {
		var out strings.Builder
		s := &screen{out: &out, drawn: []int{80, 0, 20}}
		if err := s.draw("", tt.width); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("\r\x1b[%dA\x1b[J", tt.up); out.String() != want {
			t.Errorf("%d columns: %q, want %q", tt.width, out.String(), want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		width      int
		text, want string
	}{
		{9, "one two three", "one two\nthree\n"},
		{7, "one two three", "one two\nthree\n"},
		{6, "one two three", "one\ntwo\nthree\n"},
		{3, "three", "three\n"},
	} {
		if got := wrap(tt.text, tt.width); got != tt.want {
			t.Errorf("%q in %d columns: %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

// TestStay keeps the page until Enter or Ctrl-C. Without a terminal it does not wait.
func TestStay(t *testing.T) {
	for _, tt := range []struct{ keys, want string }{{"\r", "gone <nil>"}, {"\x03", "gone context canceled"}} {
		master, slave := openTerminal(t, 80, 24)
		c := exec.Command("/proc/self/exe")
		c.Env = append(os.Environ(), "FLOODWALL_TEST_STAY=1")
		c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
		c.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		got := readUntil(t, master, "stays for 1m0s, until Enter: http://127.0.0.1:9810/\r\n")
		if _, err := master.WriteString(tt.keys); err != nil {
			t.Fatal(err)
		}
		got += readUntil(t, master, "gone")
		got += readTerminal(t, master)
		if err := c.Wait(); err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("after %q: %v, %q, want %q", tt.keys, err, got, tt.want)
		}
	}
	var out strings.Builder
	Stay(t.Context(), strings.NewReader(""), &out, "http://127.0.0.1:9810/", time.Minute)
	if out.String() != "" {
		t.Errorf("without a terminal: %q", out.String())
	}
}
