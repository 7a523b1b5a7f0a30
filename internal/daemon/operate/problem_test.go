// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHints checks the hints for a refused system call, as by a seccomp profile, and for a full disk. A file that cannot be read must get another
// hint.
func TestHints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("format: creating map: %w", unix.EPERM), "seccomp profile"},
		{&fs.PathError{Op: "open", Path: "policy.yaml", Err: unix.EPERM}, ""},
		{&fs.PathError{Op: "write", Path: "/var/lib/floodwall/feeds/x/state", Err: unix.ENOSPC}, "make space"},
		{unix.EACCES, ""},
	} {
		if p := Problems(c.err)[0]; !strings.Contains(p.Hint, c.want) || c.want == "" && p.Hint != "" {
			t.Errorf("%v: hint %q, want %q", c.err, p.Hint, c.want)
		}
	}
}
