package addrs

import (
	"bytes"
	"io"
	"math"
	"runtime"
)

// minListPart is the least bytes of a list file that are worth a part of their own.
const minListPart = 1 << 20

// maxListParts is the most parts: to merge more takes longer than they save.
const maxListParts = 8

// readParts reads a list file of so many bytes in parts, one for each CPU, beside each other. It is not ok when the file is too short for
// parts, or when anything in it is not as it should be: Read then says what.
func readParts(f io.ReaderAt, size int64, max int) (set *Set, entries int, ok bool) {
	starts := partStarts(f, size, min(int64(runtime.GOMAXPROCS(0)), maxListParts, size/minListPart))
	if len(starts) < 2 {
		return nil, 0, false
	}
	parts, sorted, errs := make([]list, len(starts)), make([]Builder, len(starts)), make([]error, len(starts))
	beside(len(starts), func(i int) {
		end := int64(math.MaxInt64) // the last part ends with the file
		if i < len(starts)-1 {
			end = starts[i+1]
		}
		l := list{max: max, size: min(end, size) - starts[i], line: min(i, 1)} // a byte order mark is in the first line only
		if errs[i] = l.lines(io.NewSectionReader(f, starts[i], end-starts[i])); errs[i] == nil {
			errs[i] = l.err()
		}
		l.builder.sort()
		parts[i], sorted[i] = l, l.builder
	})
	for i := range parts {
		if errs[i] != nil {
			return nil, 0, false
		}
		entries += parts[i].entries
	}
	if max > 0 && entries > max {
		return nil, 0, false
	}
	all := mergeBuilders(sorted)
	return all.Set(), entries, true
}

// partStarts are the places in a list file where parts of about the same size begin, each at the begin of a line; nil when there are none.
func partStarts(f io.ReaderAt, size, parts int64) (starts []int64) {
	line := make([]byte, maxLine)
	for i := range parts {
		at := size / parts * i
		if i > 0 {
			n, err := f.ReadAt(line, at)
			end := bytes.IndexByte(line[:n], '\n')
			if end < 0 || err != nil && err != io.EOF {
				return nil
			}
			at += int64(end) + 1
		}
		starts = append(starts, at)
	}
	return starts
}
