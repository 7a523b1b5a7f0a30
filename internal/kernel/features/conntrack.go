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

// countFile is there while the kernel has conntrack, built in or as a module.
const countFile = "/proc/sys/net/netfilter/nf_conntrack_count"

// noConntrack says that the kernel has no conntrack, and why it could not load it.
func noConntrack(cause, remedy string) error {
	return wording.Hinted("the module nf_conntrack is not loaded, and the kernel could not load it: "+cause, remedy)
}

// ConntrackLookup returns an error if XDP programs cannot look up connections in conntrack. It has the kernel
// load conntrack's module, and returns an error with a remedy if that fails.
func ConntrackLookup() error {
	if err := loadConntrack(); err != nil {
		return err
	}
	return kfuncSupported("bpf_xdp_ct_lookup", "5.18, when it is built with conntrack")
}

// loadConntrack has the kernel load conntrack if it is not loaded. The kernel runs the host's modprobe when it is asked
// for the table (nfnetlink_rcv_msg of net/netfilter/nfnetlink.c). That takes CAP_NET_ADMIN and not CAP_SYS_MODULE,
// needs no modprobe in this file system, and works from a container.
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

// whyUnloaded returns the reason for which the kernel has not loaded conntrack; asked is the error of the request for
// the table.
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

// hasModule reports whether a module, which may be compressed, is in a directory of modules that depmod has listed.
func hasModule(directory, name string) bool {
	list, err := os.ReadFile(filepath.Join(directory, "modules.dep"))
	for line := range strings.Lines(string(list)) {
		file, _, _ := strings.Cut(line, ":")
		if strings.HasPrefix(filepath.Base(file), name+".ko") {
			_, err := os.Stat(filepath.Join(directory, file))
			return err == nil
		}
	}
	return err != nil // without a list nothing is known
}
