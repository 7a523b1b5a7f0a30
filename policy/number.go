// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// number parses a decimal number of at most limit. It rejects YAML's other notations (0x10, 0o17, 1_000), and leading
// zeros, which some parsers take for octal: two tools could read different numbers.
func number(text string, limit uint64) (uint64, *flaw) {
	what := fmt.Sprintf("a number from 0 to %d", limit)
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && n <= limit && strconv.FormatUint(n, 10) == text {
		return n, nil
	}
	f := want(what, text)
	if n, err := strconv.ParseUint(plainNumber(text), 0, 64); err == nil && n <= limit {
		f.hintf("write %d", n)
	}
	return 0, f
}

// plainNumber returns text without leading zeros before decimal digits, which strconv would take for octal.
func plainNumber(text string) string {
	if t := strings.TrimLeft(text, "0"); t != "" && t[0] >= '1' && t[0] <= '9' {
		return t
	}
	return text
}

// numbers returns a parser of numbers and ranges up to limit, for keys with alternatives.
func numbers(limit uint32) func(string) ([]Range, *flaw) {
	what := fmt.Sprintf("a number or range from 0 to %d", limit)
	return func(text string) ([]Range, *flaw) { return one(span(text, what, limit)) }
}

var (
	lengthSchema = define("bytes", rangesTo(65535).titled("number of bytes or range"))
	hopsSchema   = define("hops", rangesTo(255).titled("number 0 to 255 or range"))
)

// one returns a list with a single alternative.
func one[T any](v T, f *flaw) ([]T, *flaw) {
	if f != nil {
		return nil, f
	}
	return []T{v}, nil
}

// span parses a number or a range first-last, of numbers up to limit. what describes the allowed values in messages.
func span(text, what string, limit uint32) (Range, *flaw) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	first, f := number(low, uint64(limit))
	if f != nil {
		return Range{}, spanHint(want(what, text), low, high, limit, f.hint)
	}
	last, f := number(high, uint64(limit))
	if f != nil {
		return Range{}, spanHint(want(what, text), low, high, limit, f.hint)
	}
	if first > last {
		return Range{}, want("a range from low to high", text).hintf("write %d-%d", last, first)
	}
	return Range{uint32(first), uint32(last)}, nil
}

// spanHint adds a hint for a range in the notation of another tool.
func spanHint(f *flaw, low, high string, limit uint32, numberHint string) *flaw {
	compact := strings.ReplaceAll(low+"-"+high, " ", "")
	switch start, end, colon := strings.Cut(low, ":"); {
	case low == high && colon && isDigits(start) && isDigits(end):
		return f.hintf("a range is written %s-%s", start, end)
	case low == "" && isDigits(high):
		return f.hintf("numbers are not negative, and a range from the start is written 0-%s", high)
	case high == "" && isDigits(low):
		return f.hintf("a range to the end is written %s-%d", low, limit)
	case low != high && strings.Contains(low+high, " ") && isDigits(strings.Replace(compact, "-", "", 1)):
		return f.hintf("write %s, without blanks", compact)
	case low == high && (strings.HasPrefix(low, ">") || strings.HasPrefix(low, "<")):
		return f.hintf("a range names both its ends, as in 0-100")
	}
	f.hint = numberHint
	return f
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// ParseDuration parses a duration in the policy's notation: 90s, 1h30m, 7d, 1d12h. It must be above zero.
func ParseDuration(text string) (time.Duration, error) {
	d, f := duration(text)
	if f != nil {
		return 0, errors.New("a time " + f.msg)
	}
	return d, nil
}

var durationSchema = define("duration", text("").titled("duration").described("A time in seconds, minutes, hours or days.").
	withExamples(`"90s", "15m", "1h", "7d"`))

const aboveZero = "a time above zero"

// duration parses the format of time.ParseDuration with optional days in front: 90s, 1h30m, 7d, 1d12h.
func duration(text string) (time.Duration, *flaw) {
	bad := want("a time such as 90s, 15m, 1h or 7d", text)
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		days, rest = "", text
	}
	var sum time.Duration
	if hasDays {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, bad
		}
		sum = time.Duration(n) * 24 * time.Hour
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			if isDigits(text) && text != "0" {
				bad.hintf("add the unit: %ss for seconds", text)
			}
			return 0, bad
		}
		sum += d
	}
	if sum <= 0 || strings.Contains(rest, "-") {
		return 0, want(aboveZero, text)
	}
	return sum, nil
}

// entryTime parses the duration of entries of a set.
func entryTime(text string) (time.Duration, *flaw) {
	d, f := duration(text)
	f.hintIfZero("leave timeout out for entries that hold until they are removed")
	return d, f
}

// hintIfZero gives a flaw a hint if it is that of a duration of 0 or less. It does nothing if there is no flaw.
func (f *flaw) hintIfZero(hint string) {
	if f != nil && strings.HasPrefix(f.msg, "must be "+aboveZero) {
		f.hint = hint
	}
}
