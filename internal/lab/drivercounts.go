package lab

import (
	"fmt"
	"time"
)

// DriverCounts is what the driver of a device has counted, in frames, since the device was made. A veth counts here with
// and without an XDP program (kernel drivers/net/veth.c, veth_xdp_rcv).
type DriverCounts struct {
	Received uint64 // by the receive thread, whatever became of them
	Dropped  uint64 // by an XDP program
	Returned uint64 // by an XDP program, out of this device or another
}

// Passed is the frames that went on to the host's network stack.
func (c DriverCounts) Passed() uint64 { return c.Received - c.Dropped - c.Returned }

// Since is what was counted after before.
func (c DriverCounts) Since(before DriverCounts) DriverCounts {
	return DriverCounts{c.Received - before.Received, c.Dropped - before.Dropped, c.Returned - before.Returned}
}

// DriverCounts reads the driver's counters. They change together, some frames at a time.
func (d *Device) DriverCounts() (c DriverCounts, err error) {
	stats, err := d.stats()
	if err != nil {
		return c, err
	}
	var tx, redirected uint64
	for name, to := range map[string]*uint64{
		"xdp_packets": &c.Received, "xdp_drops": &c.Dropped, "xdp_tx": &tx, "xdp_redirect": &redirected,
	} {
		n, ok := stats["rx_queue_0_"+name]
		if !ok {
			return c, fmt.Errorf("statistics of device %s: no counter rx_queue_0_%s", d.Name, name)
		}
		*to = n
	}
	c.Returned = tx + redirected
	return c, nil
}

// ReceiveTime is how long the device's receive thread has run since the device was made, and how long it could have run
// but others had its CPU.
func (d *Device) ReceiveTime() (ran, waited time.Duration, err error) {
	t, err := readThreadTime(d.napi)
	return t.ran, t.waited, err
}
