// SPDX-License-Identifier: Apache-2.0

package facts

import "github.com/floodwall/floodwall/internal/kernel/features"

// Offload says where a device leaves the VLAN tags of the frames that it receives.
type Offload int

// The places of the tags.
const (
	TagsInFrame  Offload = iota // in the frame
	TagsByDriver                // in metadata
	TagsBySender                // in metadata if the sender put them there; a veth does not move tags
)

// TagOffload returns where a device leaves VLAN tags. It returns TagsInFrame for a device that does not report its features.
func TagOffload(device string) Offload {
	c, err := features.Open()
	if err != nil {
		return TagsInFrame
	}
	defer c.Close()
	features, err := c.Features(device)
	if err != nil || !features["rx-vlan-hw-parse"].On {
		return TagsInFrame
	}
	if driver, err := c.Driver(device); err == nil && driver == "veth" {
		return TagsBySender
	}
	return TagsByDriver
}

// stripsVLAN reports whether the tags of a device's frames may be in metadata.
func stripsVLAN(device string) bool { return TagOffload(device) != TagsInFrame }
