package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// privilegeError says that a command needs more rights than this process has.
type privilegeError struct{ commandLine []string }

func (e *privilegeError) Error() string {
	return "this needs root, or the capabilities CAP_BPF and CAP_NET_ADMIN, and CAP_PERFMON to load the XDP program"
}

// Hint is the command with sudo.
func (e *privilegeError) Hint() string {
	if unix.Geteuid() == 0 {
		return "this root has been deprived of them: see how the container or service is set up"
	}
	words := append([]string{"sudo"}, e.commandLine...)
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n'\"$`\\*?[]()<>|&;#~") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return fmt.Sprintf("run it as `%s`", strings.Join(words, " "))
}

// privileged reports whether this process may reach the state and change devices. Loading the XDP program takes more,
// for which apply asks.
func privileged() bool { return features.CheckRights("", features.BPF, features.NetAdmin) == nil }
