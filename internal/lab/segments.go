package lab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Segments makes the device pass each TCP segment on separately, so that the number of later packets is the number of segments. The device does not
// merge received segments (GRO), and its host does not send several as one packet (GSO). A veth without GRO receives on its thread only with an XDP
// program.
func (d *Device) Segments() error {
	if err := d.ethtool(request(0, unix.ETHTOOL_SGRO, 0)); err != nil {
		return fmt.Errorf("device %s: gro off: %w", d.Name, err)
	}
	if err := d.Host.links.LinkSetGSOMaxSegs(d.link, 1); err != nil {
		return fmt.Errorf("device %s: one segment at a time: %w", d.Name, err)
	}
	return nil
}
