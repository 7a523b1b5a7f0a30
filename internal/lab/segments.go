package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Segments has the device hand each TCP segment on for itself, so that who counts packets behind it counts segments: it does not merge what
// it receives (GRO), and its host does not send several as one packet (GSO). A veth without GRO receives on its thread only while it has an
// XDP program.
func (d *Device) Segments() error {
	if err := d.ethtool(request(0, unix.ETHTOOL_SGRO, 0)); err != nil {
		return fmt.Errorf("device %s: gro off: %w", d.Name, err)
	}
	if err := d.Host.links.LinkSetGSOMaxSegs(d.link, 1); err != nil {
		return fmt.Errorf("device %s: one segment at a time: %w", d.Name, err)
	}
	return nil
}
