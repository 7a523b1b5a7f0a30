package demo

import (
	"io"
	"os"

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
