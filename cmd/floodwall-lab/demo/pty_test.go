// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sequence matches the output that the picture may send: CUU, EL, ED, SGR, or a character.
var sequence = regexp.MustCompile(`^(?:\x1b\[([0-9]*)([AKJm])|[^\x1b])`)

// replay returns the content of an endless terminal after it has received a text, line by line.
func replay(t *testing.T, text string) []string {
	t.Helper()
	lines, row, column := [][]rune{nil}, 0, 0
	for len(text) > 0 {
		m := sequence.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("a sequence that is none of a picture: %.20q", text)
		}
		text = text[len(m[0]):]
		switch {
		case m[2] == "A":
			var up int
			fmt.Sscan(m[1], &up)
			if row -= up; row < 0 {
				t.Fatal("the cursor moves above the beginning")
			}
		case m[2] == "K":
			lines[row] = lines[row][:column]
		case m[2] == "J":
			lines = append(lines[:row], lines[row][:column])
		case m[2] == "m":
		case m[0] == "\r":
			column = 0
		case m[0] == "\n":
			if row, column = row+1, 0; row == len(lines) {
				lines = append(lines, nil)
			}
		default:
			lines[row] = append(lines[row][:column], []rune(m[0])...)
			column++
		}
	}
	var shown []string
	for _, line := range lines {
		shown = append(shown, string(line))
	}
	return shown
}

// openTerminal makes a terminal that answers nothing; see pty(7).
func openTerminal(t *testing.T, width, height int) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	setSize(t, slave, width, height)
	return master, slave
}

func setSize(t *testing.T, terminal *os.File, width, height int) {
	t.Helper()
	size := unix.Winsize{Col: uint16(width), Row: uint16(height)}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
}

func settings(t *testing.T, terminal *os.File) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

// readTerminal reads the output to a terminal. If no process has the other end open, reading ends with EIO.
func readTerminal(t *testing.T, master *os.File) string {
	t.Helper()
	text, err := io.ReadAll(master)
	if err != nil && !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	return string(text)
}

// readUntil reads the output to a terminal, up to some text.
func readUntil(t *testing.T, master *os.File, text string) string {
	t.Helper()
	if err := master.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for buf := make([]byte, 4096); !strings.Contains(string(got), text); {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatalf("%v; the terminal was sent %q, want %q", err, got, text)
		}
		got = append(got, buf[:n]...)
	}
	return string(got)
}
