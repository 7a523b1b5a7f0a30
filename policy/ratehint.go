// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strconv"
	"strings"
)

// rateHint adds a hint to the flaw of a text that is not a rate.
func rateHint(f *flaw, text string) *flaw {
	if compact := strings.ReplaceAll(text, " ", ""); compact != text {
		if _, g := readRate(compact); g == nil {
			return f.hintf("write %s, without blanks", compact)
		}
	}
	number, time, _ := strings.Cut(text, "/")
	digits, unit := leadingDigits(number)
	if digits == "" {
		return f.hintf("begin with a number")
	}
	if strings.Trim(unit, "0123456789.,_") == "" && unit != "" {
		return f.hintf("the number is whole and without separators; for less than one take a longer time, as in 30/min")
	}
	usual, perTime, ok := habit(digits, unit)
	if perTime != "" {
		time = perTime
	}
	switch t := usualTime(time); {
	case !ok:
		return f.hintf("the units are bit, kbit, mbit and gbit; none is packets")
	case t == "":
		return f.hintf("the times are s, min, h and day")
	case unit == "" && time == "":
		return f.hintf("say in which time: %s/s", usual)
	case bytesUnit(unit):
		return f.hintf("rates are in bits, of which a byte has 8: %s/%s", usual, t)
	default:
		return f.hintf("write %s/%s", usual, t)
	}
}

// habit translates a number with the unit of another tool to the policy's notation. ours is the number with the policy's unit. time is the unit of
// time, if unit implies one: pps is packets per second.
func habit(digits, unit string) (ours, time string, ok bool) {
	digits = plainNumber(digits)
	lower := strings.ToLower(strings.TrimSpace(unit))
	if bytesUnit(unit) {
		n, err := strconv.ParseUint(digits, 10, 32)
		return strconv.FormatUint(8*n, 10) + strings.TrimSuffix(lower, "b") + "bit", "", err == nil
	}
	if _, bits := bitUnits[lower]; bits || lower == "" {
		return digits + lower, "", true
	}
	switch lower {
	case "packets", "packet", "p", "pkt", "pkts", "q":
		return digits, "", true
	case "pps", "qps", "rps":
		return digits, "s", true
	case "k", "kpps":
		return digits + "000", secondIn(lower), true
	case "m", "mpps":
		return digits + "000000", secondIn(lower), true
	case "bps", "kbps", "mbps", "gbps":
		return digits + strings.TrimSuffix(lower, "bps") + "bit", "s", true
	case "b", "kb", "mb", "gb", "bits", "kbits", "mbits", "gbits":
		return digits + strings.TrimRight(lower, "bits") + "bit", "", true
	}
	return "", "", false
}

// bytesUnit reports whether a unit means bytes. A capital B usually means bytes.
func bytesUnit(unit string) bool { return unit == "KB" || unit == "kB" || unit == "MB" || unit == "GB" }

func secondIn(unit string) string {
	if strings.HasSuffix(unit, "ps") {
		return "s"
	}
	return ""
}

// usualTime returns the policy's word for a unit of time in the notation of other tools.
func usualTime(time string) string {
	switch strings.ToLower(time) {
	case "", "s", "sec", "secs", "second", "seconds", "1s":
		return "s"
	case "m", "min", "mins", "minute", "minutes", "1m":
		return "min"
	case "h", "hr", "hour", "hours", "1h":
		return "h"
	case "d", "day", "days", "1d":
		return "day"
	}
	return ""
}
