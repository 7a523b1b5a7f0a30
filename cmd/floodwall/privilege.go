package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// privilegeError says that a command needs more rights than this process has.
type privilegeError struct{ commandLine []string }

func (e *privilegeError) Error() string {
	return "this needs root, or the capabilities CAP_BPF and CAP_NET_ADMIN"
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

// privileged reports whether this process may load programs and attach them to devices.
func privileged() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return unix.Geteuid() == 0
	}
	has := func(c int) bool { return data[c/32].Effective>>(c%32)&1 == 1 }
	return has(unix.CAP_SYS_ADMIN) || has(unix.CAP_BPF) && has(unix.CAP_NET_ADMIN)
}
