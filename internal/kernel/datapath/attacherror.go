package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AttachError says why a program could not be attached to a device, and what to change.
type AttachError struct {
	Device, Cause, Remedy string
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("attaching to device %s: %s", e.Device, e.Cause)
}

// Hint is the remedy.
func (e *AttachError) Hint() string { return e.Remedy }

// explainAttach finds out what is in the way. The kernel says so in words only to those who trace it; the error numbers
// are those of dev_xdp_attach (net/core/dev.c) and of the drivers.
func explainAttach(dev netlink.Link, err error) error {
	name, mtu := dev.Attrs().Name, dev.Attrs().MTU
	e := &AttachError{Device: name, Cause: err.Error(), Remedy: "`dmesg` may say more"}
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		o := findForeign(dev)
		e.Cause, e.Remedy = o.cause(), o.remedy(name)
	case errors.Is(err, unix.EPERM):
		e.Remedy = "it takes root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
	case errors.Is(err, unix.EOPNOTSUPP) && mtu <= SingleBufferMTU: // vmxnet3 says so of the MTU, too
		e.Cause = fmt.Sprintf("the driver has no native XDP (%v)", err)
		e.Remedy = "use --mode generic, which works on every device and costs several times as much a packet"
	case mtu > SingleBufferMTU:
		e.Cause = fmt.Sprintf("the driver refuses XDP, and the MTU is %d (%v)", mtu, err)
		e.Remedy = fmt.Sprintf("`ip link set dev %s mtu 1500` lets the driver have it; or use --mode generic at several times the cost", name)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		e.Cause = fmt.Sprintf("the driver refuses XDP as the device is set up (%v)", err)
		e.Remedy = fmt.Sprintf("mostly it is in the way of large receive offload or of the number of queues: "+
			"`ethtool -K %s lro off`, `ethtool -L %s combined N` with half the queues; or use --mode generic", name, name)
	}
	return e
}

// SingleBufferMTU is the largest MTU whose frames are in one buffer of a page, in bytes: 4096 less 256 of headroom, the 320 that the kernel
// keeps behind the frame, and the headers of Ethernet and a VLAN. With a larger one drivers refuse programs that take no frames in several
// buffers.
const SingleBufferMTU = 3498
