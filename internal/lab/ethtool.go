// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/ethtool.h.
const (
	ethSSStats    = 1  // enum ethtool_stringset, ETH_SS_STATS
	ethStringSize = 32 // ETH_GSTRING_LEN
)

// ifreq is struct ifreq (linux/if.h) with a pointer as its data.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// ethtool sends an ethtool request to the kernel (linux/ethtool.h). buf has the request, and receives the answer.
func (d *Device) ethtool(buf []byte) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&buf[0])
	req := ifreq{data: unsafe.Pointer(&buf[0])}
	copy(req.name[:unix.IFNAMSIZ-1], d.Name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.Host.control), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}

// request returns a buffer with 32-bit words and space for the answer after them.
func request(answer int, words ...uint32) []byte {
	var buf []byte
	for _, w := range words {
		buf = binary.NativeEndian.AppendUint32(buf, w)
	}
	return append(buf, make([]byte, answer)...)
}

// offload sets the features of the device. With GRO, a veth receives through NAPI even without an XDP program.
func (d *Device) offload() error {
	if err := d.ethtool(request(0, unix.ETHTOOL_SGRO, 1)); err != nil {
		return fmt.Errorf("gro on: %w", err)
	}
	if d.options.PartialChecksums {
		return nil
	}
	if err := d.ethtool(request(0, unix.ETHTOOL_STXCSUM, 0)); err != nil {
		return fmt.Errorf("tx checksum offload off: %w", err)
	}
	return nil
}

// stats returns all counters of the device's driver (ethtool -S).
func (d *Device) stats() (map[string]uint64, error) {
	info := request(4, unix.ETHTOOL_GSSET_INFO, 0)
	info = append(info[:8], request(4, 1<<ethSSStats, 0)...) // struct ethtool_sset_info
	if err := d.ethtool(info); err != nil {
		return nil, fmt.Errorf("statistics of device %s: %w", d.Name, err)
	}
	n := int(binary.NativeEndian.Uint32(info[16:]))

	names := request(n*ethStringSize, unix.ETHTOOL_GSTRINGS, ethSSStats, uint32(n))
	values := request(n*8, unix.ETHTOOL_GSTATS, uint32(n))
	for _, buf := range [][]byte{names, values} {
		if err := d.ethtool(buf); err != nil {
			return nil, fmt.Errorf("statistics of device %s: %w", d.Name, err)
		}
	}
	stats := make(map[string]uint64, n)
	for i := range n {
		name := names[12+i*ethStringSize:][:ethStringSize]
		name, _, _ = bytes.Cut(name, []byte{0})
		stats[string(name)] = binary.NativeEndian.Uint64(values[8+i*8:])
	}
	return stats, nil
}

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
