// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"bytes"
	"fmt"
	"net/netip"
	"time"
)

// Terms are the terms of a line after the prefix. For a missing term, the value for all lines applies.
type Terms struct {
	For time.Duration // 0: missing
	Why string        // "": missing
}

// TermsOf parses the text after the prefix of a line: for=TIME, and why=TEXT up to the end of the line. Text that does not begin like a term is a
// comment.
func TermsOf(line []byte) (t Terms, err error) {
	_, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	for rest = bytes.TrimSpace(rest); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		name, value, ok := bytes.Cut(rest, []byte("="))
		if !ok || len(name) == 0 || bytes.ContainsFunc(name, func(r rune) bool { return r < 'a' || r > 'z' }) {
			return t, nil
		}
		switch string(name) {
		case "why":
			t.Why = string(value)
			return t, nil
		case "for":
			value, rest, _ = bytes.Cut(value, []byte(" "))
			if t.For, err = BanTime(string(value)); err == nil && t.For == 0 {
				err = &OrderError{"for= has no time", "write it as for=90s, for=15m, for=1h, for=7d, or for=forever"}
			}
			if err != nil {
				return Terms{}, err
			}
		default:
			return Terms{}, &OrderError{fmt.Sprintf("unknown term %.40q", name), "the terms are for=TIME and why=TEXT; begin a comment with #"}
		}
	}
	return t, nil
}

// Renewed returns a check that the function look creates. When the check is older than the given time, Renewed calls look for a new one. While look
// fails, the check refuses every prefix.
func Renewed(look func() (func(netip.Prefix) error, error), older time.Duration) (func(netip.Prefix) error, error) {
	check, err := look()
	looked := time.Now()
	return func(p netip.Prefix) error {
		if err != nil || time.Since(looked) > older {
			check, err = look()
			looked = time.Now()
		}
		if err != nil {
			return err
		}
		return check(p)
	}, err
}
