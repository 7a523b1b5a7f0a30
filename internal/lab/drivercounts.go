package lab

import (
	"fmt"
	"time"
)

// DriverCounts has a device's counters of its driver, in frames since the device was made. A veth counts with and without an XDP program (kernel
// drivers/net/veth.c, veth_xdp_rcv).
type DriverCounts struct {
	Received uint64 // all frames that the receive thread handled
	Dropped  uint64 // by an XDP program
	Returned uint64 // frames that an XDP program sent out of this device or another; includes those lost because the queue at the other end was full
}

// Passed returns the number of frames that went on to the host's network stack.
func (c DriverCounts) Passed() uint64 { return c.Received - c.Dropped - c.Returned }

// Refused returns the number of frames that were dropped or sent back.
func (c DriverCounts) Refused() uint64 { return c.Dropped + c.Returned }

// Since returns the difference between c and an earlier reading.
func (c DriverCounts) Since(before DriverCounts) DriverCounts {
	return DriverCounts{c.Received - before.Received, c.Dropped - before.Dropped, c.Returned - before.Returned}
}

// DriverCounts reads the driver's counters. All counters of some frames change at the same time.
func (d *Device) DriverCounts() (c DriverCounts, err error) {
	stats, err := d.stats()
	if err != nil {
		return c, err
	}
	var tx, lost, redirected uint64
	for name, to := range map[string]*uint64{
		"xdp_packets": &c.Received, "xdp_drops": &c.Dropped, "xdp_tx": &tx, "xdp_tx_errors": &lost, "xdp_redirect": &redirected,
	} {
		n, ok := stats["rx_queue_0_"+name]
		if !ok {
			return c, fmt.Errorf("statistics of device %s: no counter rx_queue_0_%s", d.Name, name)
		}
		*to = n
	}
	c.Returned = tx + lost + redirected
	return c, nil
}

// ReceiveTime returns two times of the device's receive thread since the device was made: how long it ran, and how long it was ready to run while
// other threads had its CPU.
func (d *Device) ReceiveTime() (ran, waited time.Duration, err error) {
	t, err := readThreadTime(d.napi)
	return t.ran, t.waited, err
}
