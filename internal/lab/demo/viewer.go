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

// NewViewer chooses how to show a demonstration: as a picture that moves where out is a terminal that can, and in lines
// elsewhere. The picture has no styles where NO_COLOR is set (https://no-color.org).
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

// Stay lets somebody at a terminal look at the page for a time, until Enter or the end of ctx. Without a terminal it returns at once.
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

// attended reports whether somebody at a terminal sees what is written to out, and can answer: this process would be stopped if it read
// from the terminal of another job (termios(3), job control).
func attended(in io.Reader, out io.Writer) bool {
	from, isFile := in.(*os.File)
	to, alsoFile := out.(*os.File)
	if !isFile || !alsoFile || !isTerminal(from) || !isTerminal(to) {
		return false
	}
	foreground, err := unix.IoctlGetInt(int(from.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

// Width is the number of columns of a terminal, and 80 of anything else.
func Width(out io.Writer) int {
	width, _ := size(out)
	return width
}

// size is the columns and the rows of a terminal, and 80 and 24 where nobody knows.
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
