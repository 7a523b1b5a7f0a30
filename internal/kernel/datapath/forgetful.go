package datapath

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// Forgetful reports whether a device's driver stops running XDP although the kernel reports the program as attached.
// vmxnet3 of Linux 6.12 does so each time the device is set up again or its MTU changes: then all packets pass, and
// nothing is counted (test/guest). Only a new link starts it again. Generic XDP does not depend on the
// driver.
func Forgetful(device string) bool {
	c, err := features.Open()
	if err != nil {
		return false
	}
	defer c.Close()
	driver, err := c.Driver(device)
	return err == nil && driver == "vmxnet3"
}

// Forgets is the warning about XDP on a device with such a driver.
func (to Attachment) Forgets() string {
	const what = "device %s: its driver, vmxnet3, ceases to run XDP when the device was down or its MTU has changed, "
	if to.Mode == Native {
		return fmt.Sprintf(what+"and then nothing is filtered: --mode auto or generic, or apply again after `floodwall unload`", to.Device)
	}
	return fmt.Sprintf(what+"so the mode is generic, which costs several times as much a packet", to.Device)
}
