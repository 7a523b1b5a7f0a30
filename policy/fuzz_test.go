// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/policy"
)

// FuzzParse checks that Parse returns either a policy or mistakes for any input. The mistakes are in order. Each is one line, and its position is
// in the file.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"good/*.yaml", "bad/*.yaml"} {
		for _, file := range files(f, pattern) {
			_, body := splitHeader(read(f, file))
			f.Add(body)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := policy.Parse("p", src)
		if (p == nil) == (err == nil) {
			t.Fatalf("policy %v and error %v", p, err)
		}
		if err == nil {
			dump(p)
			return
		}
		var all policy.Errors
		if !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("error is %T %v", err, err)
		}
		checkErrors(t, all, 1+strings.Count(string(src), "\n")+strings.Count(string(src), "\r"))
	})
}

func checkErrors(t *testing.T, all policy.Errors, lines int) {
	line, col := 0, 0
	for _, e := range all {
		switch {
		case e.Line < 1 || e.Col < 1 || e.Line > lines:
			t.Errorf("outside of the %d lines: %v", lines, e)
		case e.Line < line || e.Line == line && e.Col < col:
			t.Errorf("out of order: %v", e)
		case e.Msg == "" || strings.ContainsAny(e.Msg+e.Hint, "\n\r\x00\x1b\ufdd0"):
			t.Errorf("not one printable line: %q, hint %q", e.Msg, e.Hint)
		}
		line, col = e.Line, e.Col
	}
}
