package demo

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// NewViewer chooses how to show a demonstration: as a picture that moves where out is a terminal that can, and in lines
// elsewhere.
func NewViewer(out io.Writer, getenv func(string) string) Viewer {
	if f, ok := out.(*os.File); ok && isTerminal(f) && getenv("TERM") != "dumb" && getenv("TERM") != "" {
		return newLive(f)
	}
	return &plain{out: out}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Width is the number of columns of a terminal, and 80 of anything else.
func Width(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return 80
}
