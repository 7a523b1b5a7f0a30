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

// Listener is a TCP socket of this network namespace that waits for connections.
type Listener struct {
	Port   uint16
	MPTCP  bool   // it takes connections of MPTCP, too
	Device string // the name of the device that it is bound to, "" for none and for the loopback device
}

// Of struct inet_diag_msg and linux/inet_diag.h.
const (
	diagPort    = 4  // where the local port is, in network byte order,
	diagDevice  = 40 // and the device, in that of the host
	diagInfo    = 2  // the bit of INET_DIAG_INFO, with which upper layers are told
	diagULP     = 19 // INET_DIAG_ULP_INFO
	diagULPName = 1  // INET_ULP_INFO_NAME, within
)

// listeners lists the TCP sockets that listen in the thread's network namespace. That of MPTCP is a socket of TCP with an
// upper layer of that name (net/mptcp/subflow.c in the kernel).
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

// boundTo is the name of a device by its index, "" for 0 and for the loopback device.
func boundTo(index int) string {
	if index == 0 {
		return ""
	}
	link, err := netlink.LinkByIndex(index)
	switch {
	case err != nil: // it has just gone
		return fmt.Sprintf("number %d", index)
	case link.Attrs().Flags&net.FlagLoopback != 0:
		return ""
	}
	return link.Attrs().Name
}

// takesMPTCP looks for the name of an upper layer among the attributes of a socket.
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
