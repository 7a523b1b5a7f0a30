package operate

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRefusedCall has a system call refused, as a seccomp profile does: the hint says who refuses. A file that cannot be read is another case.
func TestRefusedCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("format: creating map: %w", unix.EPERM), true},
		{&fs.PathError{Op: "open", Path: "policy.yaml", Err: unix.EPERM}, false},
		{unix.EACCES, false},
	} {
		if p := Problems(c.err)[0]; strings.Contains(p.Hint, "seccomp profile") != c.want {
			t.Errorf("%v: hint %q", c.err, p.Hint)
		}
	}
}
