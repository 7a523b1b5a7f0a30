package addrs

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// BadShare is how many lines of a list one unreadable line is allowed for: lists have an odd line now and then, and are wrong as a whole with
// more. It is the same for files and for what is fetched.
const BadShare = 100

// List is what a list file has.
type List struct {
	Set     *Set
	Entries int    // one per line that has one
	Odd     string // which lines were left out because they are not understood, "" when none was
}

// odd says which lines are left out, or is the error that refuses the list for them.
func (l *list) odd() (string, error) {
	bad := len(l.bad) + l.more
	switch {
	case bad == 0:
		return "", nil
	case bad*BadShare > l.entries:
		return "", l.badErr()
	}
	var lines []string
	for _, err := range l.bad[:min(len(l.bad), 3)] {
		lines = append(lines, strings.TrimPrefix(err.Error(), l.name+":"))
	}
	text := fmt.Sprintf("%s: %d of %d lines are not understood, and left out: line %s", l.name, bad, l.entries, strings.Join(lines, "; line "))
	if bad > len(lines) {
		text += " ..."
	}
	return text, nil
}

// badErr names the lines that are not understood.
func (l *list) badErr() error {
	errs := l.bad
	if l.more > 0 {
		errs = append(errs, fmt.Errorf("%s: and %d more lines", l.name, l.more))
	}
	return errors.Join(errs...)
}

// The prefixes in a list that no author means: they are shorter than any that one network has.
const (
	Shortest4 = 8
	Shortest6 = 19
)

// tooWide refuses an entry for all addresses, and a short prefix with host bits set: its length is part of something else.
func tooWide(text string) error {
	a, bits, ok := strings.Cut(text, "/")
	if !ok {
		return nil
	}
	shortest := Shortest4
	if strings.Contains(a, ":") {
		shortest = Shortest6
	}
	list, err := parseEntry(text)
	switch {
	case err == nil && list[0].Bits() == 0:
		return fmt.Errorf("%s is every address: a list of all needs no list, so leave from: $SET out of the rule", text)
	case err != nil && strings.Contains(err.Error(), "host bits") && isShorter(bits, shortest):
		return fmt.Errorf("%s has host bits set, and /%s is too short for a mistake of them: write %s for the address", text, bits, a)
	}
	return nil
}

func isShorter(bits string, than int) bool {
	n, err := strconv.Atoi(bits)
	return err == nil && n < than
}

// Unzipped is the text of a list, which may be compressed by gzip.
func Unzipped(r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(2); string(magic) != "\x1f\x8b" {
		return in, nil
	}
	return gzip.NewReader(in)
}
