// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// PrivilegeError says that a command needs more rights than this process has.
type PrivilegeError struct{ CommandLine []string }

func (e *PrivilegeError) Error() string {
	return "this needs root, or the capabilities CAP_BPF and CAP_NET_ADMIN, and CAP_PERFMON to load the XDP program"
}

// Hint returns the command line with sudo. Root without the capabilities gets an explanation instead.
func (e *PrivilegeError) Hint() string {
	if unix.Geteuid() == 0 {
		return "this root has been deprived of them: see how the container or service is set up"
	}
	words := append([]string{"sudo"}, e.CommandLine...)
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n'\"$`\\*?[]()<>|&;#~") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return fmt.Sprintf("run it as `%s`", strings.Join(words, " "))
}

// Privileged reports whether this process may access the state and change devices. The XDP program needs further capabilities, which apply checks.
func Privileged() bool { return features.CheckRights("", features.BPF, features.NetAdmin) == nil }
