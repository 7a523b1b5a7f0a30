package facts

import "github.com/floodwall/floodwall/internal/kernel/features"

// Offload is how a device hands over the tags of the frames that it receives.
type Offload int

// The ways.
const (
	TagsInFrame  Offload = iota // in the frame
	TagsByDriver                // beside it
	TagsBySender                // beside it, where the sender put them there: what crosses a veth does not change
)

// TagOffload asks a device. One that cannot be asked has none.
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

// stripsVLAN reports whether tags of a device's frames may be beside the frame.
func stripsVLAN(device string) bool { return TagOffload(device) != TagsInFrame }
