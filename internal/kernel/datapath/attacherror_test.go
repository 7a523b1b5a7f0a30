// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestExplainAttach tests the error numbers that the kernel and the drivers return.
func TestExplainAttach(t *testing.T) {
	for _, row := range []struct {
		err         error
		mtu         int
		cause, hint string
	}{
		{unix.EBUSY, 1500, "another XDP program is attached", "`ip link set dev x0 xdpdrv off`"},
		{unix.EEXIST, 9000, "another XDP program is attached", "`bpftool net show dev x0`"},
		{unix.EPERM, 9000, "operation not permitted", "root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"},
		{unix.EOPNOTSUPP, 9000, "the MTU is 9000 (attaching: operation not supported)", "or use --mode auto"},
		{unix.EOPNOTSUPP, 1500, "no native XDP (attaching: operation not supported)", "--mode auto"},
		{unix.EINVAL, 9000, "the MTU is 9000 (attaching: invalid argument)", "`ip link set dev x0 mtu 1500`"},
		{unix.ERANGE, 3499, "the MTU is 3499 (attaching: numerical result out of range)", "`ip link set dev x0 mtu 1500`"},
		{unix.EINVAL, 3498, "as the device is set up (attaching: invalid argument)", "`ethtool -K x0 lro off`"},
		{unix.ERANGE, 1500, "as the device is set up (attaching: numerical result", "`ethtool -L x0 combined N`"},
		{unix.ENOMEM, 1500, "as the device is set up (attaching: cannot allocate memory)", "--mode auto"},
		{unix.ENOSPC, 1500, "as the device is set up (attaching: no space left on device)", "half the queues"},
		{unix.EIO, 1500, "input/output error", "`dmesg`"},
	} {
		dev := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "x0", MTU: row.mtu}}
		err := explainAttach(dev, fmt.Errorf("attaching: %w", row.err))
		var a *AttachError
		if !errors.As(err, &a) || !strings.HasPrefix(a.Error(), "attaching to device x0: ") ||
			!strings.Contains(a.Cause, row.cause) || !strings.Contains(a.Hint(), row.hint) {
			t.Errorf("%v, MTU %d: %v\nhint %q\nwant %q\nand  %q", row.err, row.mtu, err, a.Hint(), row.cause, row.hint)
		}
	}
}
