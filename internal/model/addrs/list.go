// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	maxBadLines = 10      // number of bad lines that are reported individually
	maxLine     = 1 << 20 // bytes; far more than the longest comment in known lists
	sampleLines = 1 << 16 // number of entries after which the total number is estimated
)

// ReadFile reads a list file like ReadList. It does not report the lines that were left out.
func ReadFile(path string, max int) (*Set, int, error) {
	l, err := ReadList(path, max)
	return l.Set, l.Entries, err
}

// ReadList reads a list file, which may be compressed with gzip. Read describes its form. One line in a hundred may be unreadable.
func ReadList(path string, max int) (List, error) {
	f, err := os.Open(path)
	if err != nil {
		return List{}, err
	}
	defer f.Close()
	l := list{name: path, max: max}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		l.size = info.Size()
		if set, entries, ok := readParts(f, l.size, max); ok {
			return List{Set: set, Entries: entries}, nil
		}
	}
	text, err := Unzipped(f)
	if err != nil {
		return List{}, fmt.Errorf("%s: %w", path, err)
	}
	return l.read(text)
}

// Read reads a list. It returns the set and the number of entries. A line has at most one entry: an address, a prefix, a range (first-last), or a
// range after a name (name:first-last). If an address, a mask or a length follows the entry, it is parsed as a part of the entry or the line is
// rejected (see withRest). Other words, comments, empty lines and host bits that are set in a prefix are ignored. IPv4-mapped IPv6 addresses are
// rejected.
//
// Read returns an error and no set if there are more entries than max (0 means no limit), or more unreadable lines than BadShare allows. The error
// lists up to 10 such lines, with the file name and line number.
func Read(r io.Reader, name string, max int) (*Set, int, error) {
	l := list{name: name, max: max}
	read, err := l.read(r)
	return read.Set, read.Entries, err
}

// list is the state of reading a list file.
type list struct {
	name    string
	max     int
	size    int64 // size of the file in bytes, 0 if unknown
	done    int64 // bytes read so far
	line    int
	entries int
	bad     []error // errors of the first maxBadLines bad lines
	more    int     // number of further bad lines
	builder Builder
}

func (l *list) read(r io.Reader) (List, error) {
	if err := l.lines(r); err != nil {
		return List{}, err
	}
	odd, err := l.odd()
	if err = errors.Join(err, l.fullErr()); err != nil {
		return List{}, err
	}
	return List{l.builder.Set(), l.entries - len(l.bad) - l.more, odd}, nil
}

func (l *list) lines(r io.Reader) error {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		known, _ := in.Peek(in.Buffered())
		in.Discard(l.plainHosts(known))
		line, err := in.ReadSlice('\n')
		if err != nil && err != io.EOF {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = errors.New("line is longer than 1 MiB, so this is not a list of addresses")
			}
			return fmt.Errorf("%s:%d: %w", l.name, l.line+1, err)
		}
		if l.line == 0 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // a byte order mark
		}
		l.add(line)
		if err == io.EOF {
			return nil
		}
	}
}

// plainHosts reads the leading lines that are an IPv4 address and nothing else. It returns their total length in bytes.
func (l *list) plainHosts(text []byte) (read int) {
	for {
		a, n := plainHost(text[read:])
		if n == 0 {
			return read
		}
		read += n
		l.line++
		l.done += int64(n)
		if l.count() {
			l.builder.hosts = append(l.builder.hosts, a)
		}
	}
}

// add reads one line, with or without its newline.
func (l *list) add(line []byte) {
	l.line++
	l.done += int64(len(line))
	if r, ok := fastLine(line); ok {
		if l.count() {
			l.builder.v4 = append(l.builder.v4, r)
		}
		return
	}
	text := entryText(line)
	if text == "" {
		return
	}
	if l.count() {
		known := len(l.builder.v6)
		err := l.builder.AddText(text)
		if err != nil {
			if named := namedRange(line); named != "" {
				text = named
				err = l.builder.AddText(text)
			}
		}
		if err == nil {
			err = mappedError(text, l.builder.v6[known:])
		}
		if err == nil {
			err = tooWide(text)
		}
		if err != nil {
			l.reject(err)
		}
	}
}

// mappedError returns an error for an entry of IPv4-mapped IPv6 addresses (RFC 4291, 2.5.5.2). No packet carries such addresses. The author means
// IPv4 addresses, which the entry would not match. pieces are the prefixes of the entry. An IPv4 entry has none.
func mappedError(text string, pieces []prefix6) error {
	if !slices.ContainsFunc(pieces, func(p prefix6) bool { return p.family() == 0 }) {
		return nil
	}
	if len(pieces) > 1 || strings.Contains(text, "-") {
		return fmt.Errorf("%s stands for IPv4 addresses: write the range with IPv4 addresses", text)
	}
	p := pieces[0].unmapped()
	if p.IsSingleIP() && !strings.Contains(text, "/") {
		return fmt.Errorf("%s stands for an IPv4 address: write %s", text, p.Addr())
	}
	return fmt.Errorf("%s stands for IPv4 addresses: write %s", text, p)
}

// count counts an entry and reports whether there is space for it.
func (l *list) count() bool {
	l.entries++
	if l.entries == sampleLines {
		l.estimate()
	}
	return l.max <= 0 || l.entries <= l.max
}

// estimate reserves memory for the rest of the file. It assumes that the rest is like the beginning. Without it, growing a slice of 10M ranges costs
// more time than reading them.
func (l *list) estimate() {
	rest := float64(l.size-l.done) / float64(l.done) * 1.02
	if l.max > 0 {
		rest = min(rest, float64(l.max)/sampleLines)
	}
	if rest > 0 {
		l.builder.grow(rest)
	}
}

func (l *list) reject(err error) {
	if len(l.bad) == maxBadLines {
		l.more++
		return
	}
	l.bad = append(l.bad, fmt.Errorf("%s:%d: %w", l.name, l.line, err))
}

// err returns all errors of the list, or nil.
func (l *list) err() error { return errors.Join(l.badErr(), l.fullErr()) }

func (l *list) fullErr() error {
	if l.max > 0 && l.entries > l.max {
		return fmt.Errorf("%s: %d entries, but max is %d: raise max: of the set, or shorten the list", l.name, l.entries, l.max)
	}
	return nil
}
