// SPDX-License-Identifier: Apache-2.0

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

// A record is one line: the CRC-32 of the rest of the line, the sign of the change, set, prefix, start and end in seconds since 1970
// ("-" for no end), a letter that only earlier versions used, and the reason.
//
//	1c291ca3 + bans 198.51.100.7/32 1795323000 - m "scanner"

const none = "-"

func appendRecord(to []byte, r Record) []byte {
	sign, end := "+", none
	if r.Gone {
		sign = "-"
	}
	if !r.Until.IsZero() && r.Until != Never {
		end = strconv.FormatInt(r.Until.Unix(), 10)
	}
	line := fmt.Appendf(nil, "%s %s %s %d %s m %q", sign, r.Set, r.Prefix, r.Start.Unix(), end, r.Text())
	return fmt.Appendf(to, "%08x %s\n", crc32.ChecksumIEEE(line), line)
}

// parseRecord parses a line without its newline. ok is false if the line is damaged.
func parseRecord(line []byte) (r Record, ok bool) {
	sum, rest, found := bytes.Cut(line, []byte(" "))
	if !found || string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(rest)) {
		return r, false
	}
	f := strings.SplitN(string(rest), " ", 7)
	if len(f) != 7 {
		return r, false
	}
	prefix, err := netip.ParsePrefix(f[2])
	if err != nil {
		return r, false
	}
	start, err := strconv.ParseInt(f[3], 10, 64)
	if err != nil {
		return r, false
	}
	until := Never
	if f[4] != none {
		end, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil {
			return r, false
		}
		until = time.Unix(end, 0)
	}
	why, err := strconv.Unquote(f[6])
	return Record{Read(prefix, f[1], why, until), f[0] == "-", time.Unix(start, 0)}, err == nil
}

// strike marks existing lines of the file as removed, for the removed entries. It is used when the disk is full and no line can be appended: it
// changes the sign of a line in place, which needs no disk space. Without strike an unblocked entry would come back.
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

// mendTail removes an incomplete last line, so that the next record starts on a new line. A process that died while writing leaves such a line.
func mendTail(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	const longest = 4096 // no line is longer
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
