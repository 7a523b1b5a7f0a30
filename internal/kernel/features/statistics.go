// SPDX-License-Identifier: Apache-2.0

// This file reads the counters that the kernel keeps for devices.

package features

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Statistics are counters of packets that a device has received and lost, and of changes of its carrier.
type Statistics struct {
	Missed  uint64 // found no free place in the receive ring: the largest of rx_missed_errors, rx_fifo_errors and rx_over_errors, as drivers count one loss in one or more of them
	Dropped uint64 // rx_dropped: dropped after the driver, such as packets that found no space in the backlog of a CPU
	Carrier uint32 // how often the carrier has come or gone
}

// StatisticsOf returns the statistics of a device.
func StatisticsOf(ifindex int) (s Statistics, err error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(ifindex)
	req.AddData(msg)
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err == nil && len(answers) == 0 {
		err = unix.ENODEV
	}
	var attrs []syscall.NetlinkRouteAttr
	if err == nil {
		attrs, err = nl.ParseRouteAttr(answers[0][unix.SizeofIfInfomsg:])
	}
	if err != nil {
		return s, fmt.Errorf("statistics of device %d: %w", ifindex, err)
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFLA_STATS64:
			var of netlink.LinkStatistics64
			if _, err := binary.Decode(a.Value, binary.NativeEndian, &of); err != nil {
				return s, fmt.Errorf("statistics of device %d: %w", ifindex, err)
			}
			s.Missed, s.Dropped = max(of.RxMissedErrors, of.RxFifoErrors, of.RxOverErrors), of.RxDropped
		case unix.IFLA_CARRIER_CHANGES:
			s.Carrier = binary.NativeEndian.Uint32(a.Value)
		}
	}
	return s, nil
}

// BacklogDrops returns how many packets found no space in the backlog of a CPU, of all devices together (the second column of softnet_stat,
// net/core/net-procfs.c).
func BacklogDrops() (n uint64, err error) {
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0, fmt.Errorf("drops of the backlog: %w", err)
	}
	for line := range bytes.Lines(text) {
		columns := bytes.Fields(line)
		if len(columns) < 2 {
			continue
		}
		of, err := strconv.ParseUint(string(columns[1]), 16, 32)
		if err != nil {
			return 0, fmt.Errorf("drops of the backlog: %w", err)
		}
		n += of
	}
	return n, nil
}
