// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/floodwall/floodwall/internal/kernel/features"
)

// Forgetful reports whether a device's driver may stop running XDP although the kernel still reports the program as attached. The driver vmxnet3 of
// Linux 6.12 does so each time the device is set up again or its MTU changes. Then all packets pass, and none is counted (e2e/guest). Only a new
// link starts XDP again. The modes tc and generic do not depend on the driver.
func Forgetful(device string) bool {
	c, err := features.Open()
	if err != nil {
		return false
	}
	defer c.Close()
	driver, err := c.Driver(device)
	return err == nil && driver == "vmxnet3"
}

// Forgets returns the warning about XDP on a device for which Forgetful returns true.
func (to Attachment) Forgets() string {
	const what = "device %s: its driver, vmxnet3, ceases to run XDP when the device was down or its MTU has changed, "
	if to.Mode == Native {
		return fmt.Sprintf(what+"and then nothing is filtered: --mode auto or tc, or apply again after `floodwall unload`", to.Device)
	}
	return fmt.Sprintf(what+"so the mode is %s, which costs several times as much a dropped packet", to.Device, Instead())
}
