// SPDX-License-Identifier: Apache-2.0

package addrs

import (
	"bytes"
	"io"
	"math"
	"runtime"
)

// minListPart is the smallest size in bytes of a part of a list file: reading a smaller part concurrently does not pay off.
const minListPart = 1 << 20

// maxListParts is the largest number of parts: merging more parts takes longer than they save.
const maxListParts = 8

// readParts reads a list file of the given size concurrently, in one part for each CPU. ok is false if the file is too short for parts, or if
// anything in it is wrong. The caller then calls Read, which reports the error.
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

// partStarts returns the offsets in a list file where parts of about the same size start. Each is the start of a line. It returns nil if
// there are none.
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
