// SPDX-License-Identifier: Apache-2.0

// This file checks the capabilities of this process, and says why the missing ones are needed.

package features

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Need is a capability that an operation requires.
type Need struct {
	number    int
	name, why string
	admin     bool // whether CAP_SYS_ADMIN includes it: bpf_capable and perfmon_capable of include/linux/capability.h
}

// The capabilities that the kernel and the tools require (bpf_prog_load and bpf_check of kernel/bpf; libxt_set of iptables).
var (
	BPF      = Need{unix.CAP_BPF, "CAP_BPF", "the kernel asks for to load programs and make maps", true}
	NetAdmin = Need{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "the kernel asks for to change devices and netfilter", false}
	Perfmon  = Need{unix.CAP_PERFMON, "CAP_PERFMON",
		"the kernel's verifier asks for of programs that copy parts of pointers, as compiled C does", true}
	NetRaw = Need{unix.CAP_NET_RAW, "CAP_NET_RAW", "iptables asks for to open the socket by which it finds sets", false}
)

// CheckRights returns an error when this process lacks any of the capabilities that an operation requires.
func CheckRights(what string, needs ...Need) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil // the kernel reports missing capabilities later
	}
	has := func(c int) bool { return data[c/32].Effective>>(c%32)&1 == 1 }
	var names, each []string
	for _, n := range needs {
		if !has(n.number) && !(n.admin && has(unix.CAP_SYS_ADMIN)) {
			names = append(names, n.name)
			each = append(each, fmt.Sprintf("%s is missing, which %s", n.name, n.why))
		}
	}
	if names == nil {
		return nil
	}
	return wording.Hinted(what+": "+strings.Join(each, "; "),
		"run this as root, or with "+strings.Join(names, " and ")+" beside the capabilities that it has")
}
