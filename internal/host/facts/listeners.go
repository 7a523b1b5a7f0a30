// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/os/sockets"
)

// Listener is a listening TCP socket of this network namespace.
type Listener struct {
	Port   uint16
	MPTCP  bool   // whether it also accepts MPTCP connections
	Device string // the device to which it is bound; "" for none or the loopback device
}

// Offsets in struct inet_diag_msg, and numbers of linux/inet_diag.h.
const (
	diagPort    = 4  // offset of the local port, in network byte order
	diagDevice  = 40 // offset of the device, in the host's byte order
	diagInfo    = 2  // the bit of INET_DIAG_INFO, which requests the upper-layer protocol
	diagULP     = 19 // INET_DIAG_ULP_INFO
	diagULPName = 1  // INET_ULP_INFO_NAME, within INET_DIAG_ULP_INFO
)

// listeners lists the listening TCP sockets of the thread's network namespace. An MPTCP socket is a TCP socket whose upper-layer protocol is named
// mptcp (net/mptcp/subflow.c in the kernel).
func listeners() (list []Listener, err error) {
	messages, err := sockets.Dump(unix.IPPROTO_TCP, diagInfo)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		mptcp, err := takesMPTCP(m[sockets.MessageSize:])
		if err != nil {
			return nil, fmt.Errorf("sockets that listen: %w", err)
		}
		list = append(list, Listener{
			Port: binary.BigEndian.Uint16(m[diagPort:]), MPTCP: mptcp, Device: boundTo(int(binary.NativeEndian.Uint32(m[diagDevice:]))),
		})
	}
	return list, nil
}

// boundTo returns the name of the device with an index. It returns "" for 0 and for the loopback device.
func boundTo(index int) string {
	if index == 0 {
		return ""
	}
	link, err := netlink.LinkByIndex(index)
	switch {
	case err != nil: // the device has just gone
		return fmt.Sprintf("number %d", index)
	case link.Attrs().Flags&net.FlagLoopback != 0:
		return ""
	}
	return link.Attrs().Name
}

// takesMPTCP reports whether the attributes of a socket name MPTCP as the upper-layer protocol.
func takesMPTCP(attributes []byte) (bool, error) {
	list, err := nl.ParseRouteAttr(attributes)
	if err != nil {
		return false, err
	}
	for _, a := range list {
		if a.Attr.Type&^unix.NLA_F_NESTED != diagULP {
			continue
		}
		inner, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return false, err
		}
		for _, b := range inner {
			if b.Attr.Type == diagULPName {
				return string(bytes.TrimRight(b.Value, "\x00")) == "mptcp", nil
			}
		}
	}
	return false, nil
}
