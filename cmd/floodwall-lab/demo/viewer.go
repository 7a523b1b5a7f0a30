// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// NewViewer returns a viewer that suits out: a moving picture if out is a capable terminal, else a line for each event. The picture has no styles if
// NO_COLOR is set (https://no-color.org).
func NewViewer(out io.Writer, getenv func(string) string) Viewer {
	if f, ok := out.(*os.File); ok && isTerminal(f) && getenv("TERM") != "dumb" && getenv("TERM") != "" {
		return newLive(f, getenv("NO_COLOR") == "")
	}
	return &plain{out: out}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Stay gives a person at a terminal time to look at the page. It ends when the person presses Enter, when ctx ends, or after the time most. Without a
// terminal it returns at once.
func Stay(ctx context.Context, in io.Reader, out io.Writer, address string, most time.Duration) {
	if address == "" || !attended(in, out) {
		return
	}
	fmt.Fprintf(out, "\nThe daemon's page stays for %v, until Enter: %s\n", most, address)
	entered := make(chan struct{})
	go func() { // it ends with the process, if nobody presses Enter
		_, _ = bufio.NewReader(in).ReadString('\n')
		close(entered)
	}()
	select {
	case <-entered:
	case <-ctx.Done():
	case <-time.After(most):
	}
}

// attended reports whether a person at a terminal sees the output of out and can answer. It checks that this process is in the foreground, because a
// process in the background would be stopped when it reads from the terminal (termios(3), job control).
func attended(in io.Reader, out io.Writer) bool {
	from, isFile := in.(*os.File)
	to, alsoFile := out.(*os.File)
	if !isFile || !alsoFile || !isTerminal(from) || !isTerminal(to) {
		return false
	}
	foreground, err := unix.IoctlGetInt(int(from.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// Width returns the number of columns of a terminal, or 80 if out is not a terminal.
func Width(out io.Writer) int {
	width, _ := size(out)
	return width
}

// size returns the columns and the rows of a terminal, or 80 and 24 if they are unknown.
func size(out io.Writer) (width, height int) {
	width, height = 80, 24
	f, ok := out.(*os.File)
	if !ok {
		return width, height
	}
	s, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err == nil && s.Col > 0 {
		width = int(s.Col)
	}
	if err == nil && s.Row > 0 {
		height = int(s.Row)
	}
	return width, height
}
