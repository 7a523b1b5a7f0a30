// SPDX-License-Identifier: Apache-2.0

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

// BadShare is the number of lines in a list for which one unreadable line is allowed. Lists sometimes have an unreadable line. If there are more of
// them, the whole list is wrong. The same limit applies to files and to fetched lists.
const BadShare = 100

// List is the contents of a list file.
type List struct {
	Set     *Set
	Entries int    // number of entries; a line has at most one
	Odd     string // describes the unreadable lines that were left out; "" if there were none
}

// odd returns a text about the unreadable lines. If there are too many of them, it returns an error, and the list is rejected.
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

// badErr returns an error that lists the unreadable lines.
func (l *list) badErr() error {
	errs := l.bad
	if l.more > 0 {
		errs = append(errs, fmt.Errorf("%s: and %d more lines", l.name, l.more))
	}
	return errors.Join(errs...)
}

// The shortest prefix lengths of a single network. A shorter prefix in a list is a mistake.
const (
	Shortest4 = 8
	Shortest6 = 19
)

// tooWide returns an error for an entry that covers all addresses, and for a short prefix with host bits set. In such a prefix, the number after the
// slash is not meant as a length.
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

// Unzipped returns a reader of the text of a list, which may be compressed with gzip.
func Unzipped(r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(2); string(magic) != "\x1f\x8b" {
		return in, nil
	}
	return gzip.NewReader(in)
}
