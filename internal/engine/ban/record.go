package ban

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// A record is a line: the CRC-32 of what follows, the sign of the change, set, prefix, the seconds of its start and end since
// 1970 ("-" for no end), who entered it, and why.
//
//	1c291ca3 + bans 198.51.100.7/32 1795323000 - m "scanner"

const none = "-"

func appendRecord(to []byte, r Record) []byte {
	sign, origin, end := "+", "m", none
	if r.Gone {
		sign = "-"
	}
	if r.Auto {
		origin = "a"
	}
	if !r.End.IsZero() {
		end = strconv.FormatInt(r.End.Unix(), 10)
	}
	line := fmt.Appendf(nil, "%s %s %s %d %s %s %q", sign, r.Set, r.Prefix, r.Start.Unix(), end, origin, r.Why)
	return fmt.Appendf(to, "%08x %s\n", crc32.ChecksumIEEE(line), line)
}

// parseRecord reads a line without its end. It reports whether the line is whole.
func parseRecord(line []byte) (r Record, ok bool) {
	sum, rest, found := bytes.Cut(line, []byte(" "))
	if !found || string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(rest)) {
		return r, false
	}
	f := strings.SplitN(string(rest), " ", 7)
	if len(f) != 7 {
		return r, false
	}
	r.Gone, r.Set, r.Auto = f[0] == "-", f[1], f[5] == "a"
	var err error
	if r.Prefix, err = netip.ParsePrefix(f[2]); err != nil {
		return r, false
	}
	start, err := strconv.ParseInt(f[3], 10, 64)
	if err != nil {
		return r, false
	}
	r.Start = time.Unix(start, 0)
	if f[4] != none {
		end, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil {
			return r, false
		}
		r.End = time.Unix(end, 0)
	}
	r.Why, err = strconv.Unquote(f[6])
	return r, err == nil
}

// strike notes where the file has entries that they were removed, since a full disk takes no line that says so. The sign of a line is
// changed in its place, which takes no space. Without this, an entry that somebody has removed would come back.
func (l *Log) strike(removed []Record) error {
	gone := map[key]bool{}
	for _, r := range removed {
		if r.Gone {
			gone[key{r.Set, r.Prefix}] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	f, err := os.OpenFile(l.file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	at, in := int64(0), bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return f.Sync()
		}
		if err != nil {
			return err
		}
		if r, ok := parseRecord(bytes.TrimSuffix(line, []byte("\n"))); ok && !r.Gone && gone[key{r.Set, r.Prefix}] {
			r.Gone = true
			if text := appendRecord(nil, r); len(text) == len(line) {
				if _, err := f.WriteAt(text, at); err != nil {
					return err
				}
			}
		}
		at += int64(len(line))
	}
}

// mendTail cuts off a line that a process that died has left unfinished, so that the next one begins anew.
func mendTail(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	const longest = 4096 // that no line exceeds
	at := max(info.Size()-longest, 0)
	tail := make([]byte, info.Size()-at)
	if _, err := f.ReadAt(tail, at); err != nil {
		return err
	}
	if end := bytes.LastIndexByte(tail, '\n'); end+1 < len(tail) {
		return f.Truncate(at + int64(end+1))
	}
	return nil
}
