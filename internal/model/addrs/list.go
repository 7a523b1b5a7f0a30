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
	maxBadLines = 10      // reported one by one
	maxLine     = 1 << 20 // bytes; the longest comment of known lists is far below
	sampleLines = 1 << 16 // after which the size of the whole is estimated
)

// ReadFile is ReadList for callers to which lines that are left out make no difference.
func ReadFile(path string, max int) (*Set, int, error) {
	l, err := ReadList(path, max)
	return l.Set, l.Entries, err
}

// ReadList reads a list file, see Read. The file may be compressed by gzip. Of a hundred lines one may be unreadable.
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

// Read reads a list. A line holds an address, a prefix, a range (first-last), or a range behind a name (name:first-last). Its rest is read or
// refused where it is an address, a mask or a length (see withRest). Other words, comments and empty lines are left out. Host bits set in a
// prefix are left out; IPv4 addresses in their IPv6 form are refused. The number is that of the entries, one per line that has one.
// With more entries than max (0: no limit), and with more lines that are not understood than BadShare allows, there is no set; the error names
// up to 10 such lines, with name and number.
func Read(r io.Reader, name string, max int) (*Set, int, error) {
	l := list{name: name, max: max}
	read, err := l.read(r)
	return read.Set, read.Entries, err
}

// list is a list file being read.
type list struct {
	name    string
	max     int
	size    int64 // bytes of the file, 0 when not known
	done    int64 // read so far
	line    int
	entries int
	bad     []error // the first maxBadLines
	more    int     // bad lines beyond
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

// plainHosts reads the leading lines that are an IPv4 address and nothing else. It returns their length.
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

// add reads one line, with or without the end of line.
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

// mappedError refuses an entry of IPv4 addresses in their IPv6 form (RFC 4291, 2.5.5.2), which no packet carries: the
// author means IPv4, and would not get it. pieces are the prefixes of the entry, none when it is IPv4.
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

// estimate makes space for the rest of the file, supposing that it goes on as it began. Without it, a growing slice of
// 10M ranges costs more than reading them.
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

// err is all that is wrong with the list.
func (l *list) err() error { return errors.Join(l.badErr(), l.fullErr()) }

func (l *list) fullErr() error {
	if l.max > 0 && l.entries > l.max {
		return fmt.Errorf("%s: %d entries, but max is %d: raise max: of the set, or shorten the list", l.name, l.entries, l.max)
	}
	return nil
}
