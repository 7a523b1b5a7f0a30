// SPDX-License-Identifier: Apache-2.0

package features

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// countFile exists if the kernel has conntrack, built in or as a loaded module.
const countFile = "/proc/sys/net/netfilter/nf_conntrack_count"

// noConntrack returns the error that the kernel has no conntrack. cause says why the kernel could not load the module.
func noConntrack(cause, remedy string) error {
	return wording.Hinted("the module nf_conntrack is not loaded, and the kernel could not load it: "+cause, remedy)
}

// ConntrackLookup returns an error if XDP programs cannot look up connections in conntrack. It makes the kernel load conntrack's module. If that
// fails, the error has a remedy.
func ConntrackLookup() error {
	if err := loadConntrack(); err != nil {
		return err
	}
	return kfuncSupported("bpf_xdp_ct_lookup", "5.18, when it is built with conntrack")
}

// loadConntrack makes the kernel load conntrack if it is not loaded. When a process asks for conntrack's table, the kernel runs the host's modprobe
// (nfnetlink_rcv_msg of net/netfilter/nfnetlink.c). The request requires CAP_NET_ADMIN, not CAP_SYS_MODULE. This file system needs no modprobe, so
// the request also works from a container.
func loadConntrack() error {
	if hasConntrack() {
		return nil
	}
	_, asked := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if hasConntrack() {
		return nil
	}
	return whyUnloaded(asked)
}

func hasConntrack() bool {
	_, err := os.Stat(countFile)
	return err == nil
}

// whyUnloaded returns the reason why the kernel has not loaded conntrack. `asked` is the error of the request for conntrack's table.
func whyUnloaded(asked error) error {
	disabled, _ := os.ReadFile("/proc/sys/kernel/modules_disabled")
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	modules := filepath.Join("/lib/modules", string(bytes.TrimSpace(release)))
	_, missing := os.Stat(modules)
	switch {
	case errors.Is(asked, unix.EPERM):
		return noConntrack("CAP_NET_ADMIN is missing", "run it as root, or with CAP_NET_ADMIN")
	case string(bytes.TrimSpace(disabled)) == "1":
		return noConntrack("kernel.modules_disabled is 1, so no module can be loaded until the next boot",
			"name nf_conntrack in /etc/modules-load.d/floodwall.conf, and boot")
	case missing != nil:
		return noConntrack(modules+" is not there", "install the modules of the kernel that runs, or boot the kernel that is installed; "+
			"in a container run `modprobe nf_conntrack` on its host")
	case !hasModule(modules, "nf_conntrack"):
		return noConntrack(modules+" does not have it", "install all modules of the kernel that runs")
	}
	return noConntrack(fmt.Sprintf("asked for the table, it answered: %v", asked), "`modprobe nf_conntrack` says why")
}

// hasModule reports whether a directory of modules has a module, which may be compressed. It reads the list of depmod.
func hasModule(directory, name string) bool {
	list, err := os.ReadFile(filepath.Join(directory, "modules.dep"))
	for line := range strings.Lines(string(list)) {
		file, _, _ := strings.Cut(line, ":")
		if strings.HasPrefix(filepath.Base(file), name+".ko") {
			_, err := os.Stat(filepath.Join(directory, file))
			return err == nil
		}
	}
	return err != nil // without the list assume that the module exists
}
