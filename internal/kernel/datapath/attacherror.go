// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AttachError says why a program could not be attached to a device, with the remedy.
type AttachError struct {
	Device, Cause, Remedy string
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("attaching to device %s: %s", e.Device, e.Cause)
}

// Hint is the remedy.
func (e *AttachError) Hint() string { return e.Remedy }

// explainAttach finds out why attaching failed. The kernel reports the reason as text only to tracing. The error numbers come from dev_xdp_attach
// (net/core/dev.c) and from the drivers.
func explainAttach(dev netlink.Link, err error) error {
	if err == nil {
		return nil
	}
	name, mtu := dev.Attrs().Name, dev.Attrs().MTU
	e := &AttachError{Device: name, Cause: err.Error(), Remedy: "`dmesg` may say more"}
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		o := findForeign(dev)
		e.Cause, e.Remedy = o.cause(), o.remedy(name)
	case errors.Is(err, unix.EPERM):
		e.Remedy = "it takes root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
	case errors.Is(err, unix.EOPNOTSUPP) && mtu <= SingleBufferMTU: // with a too large MTU, vmxnet3 also returns this error
		e.Cause = fmt.Sprintf("the driver has no native XDP (%v)", err)
		e.Remedy = fmt.Sprintf("use --mode auto, which takes mode %s there", Instead())
	case mtu > SingleBufferMTU:
		e.Cause = fmt.Sprintf("the driver refuses XDP, and the MTU is %d (%v)", mtu, err)
		e.Remedy = fmt.Sprintf("`ip link set dev %s mtu 1500` lets the driver have it; or use --mode auto, which takes mode %s there", name, Instead())
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		e.Cause = fmt.Sprintf("the driver refuses XDP as the device is set up (%v)", err)
		e.Remedy = fmt.Sprintf("mostly it is in the way of large receive offload or of the number of queues: "+
			"`ethtool -K %s lro off`, `ethtool -L %s combined N` with half the queues; or use --mode auto, which takes mode %s there", name, name, Instead())
	}
	return e
}

// SingleBufferMTU is the largest MTU whose frames fit into one buffer of a page, in bytes: 4096 minus 256 of headroom, the 320 that the kernel keeps
// after the frame, and the headers of Ethernet and a VLAN. With a larger MTU drivers refuse programs that do not support frames in several buffers.
const SingleBufferMTU = 3498
