// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// routeBatch is the number of routes in one system call: some 60 kB of messages.
const routeBatch = 1000

// Routes adds IPv4 routes through dev to the host's main table, each from a prefix to a neighbor, which must be an address of dev's peer. It is for
// full tables: a million routes take some seconds. No prefix may be in the table yet.
func (h *Host) Routes(dev *Device, routes iter.Seq2[netip.Prefix, netip.Addr]) error {
	err := h.Do(func() error {
		s, err := nl.Subscribe(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer s.Close()
		var batch []byte
		n, last := 0, 0
		for to, via := range routes {
			if n++; n%routeBatch == 1 {
				batch = batch[:0]
			}
			last = len(batch)
			batch = appendRoute(batch, to, via, dev.Index)
			if n%routeBatch == 0 {
				if err := transact(s, acknowledged(batch, last)); err != nil {
					return fmt.Errorf("%d routes to %s: %w", routeBatch, to, err)
				}
			}
		}
		if n%routeBatch == 0 {
			return nil
		}
		return transact(s, acknowledged(batch, last))
	})
	if err != nil {
		return fmt.Errorf("routes of host %s: %w", h.Name, err)
	}
	return nil
}

// acknowledged makes the message that starts at last request an answer.
func acknowledged(batch []byte, last int) []byte {
	flags := batch[last+6:] // linux/netlink.h, struct nlmsghdr
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	return batch
}

// appendRoute appends the request to add a route (linux/rtnetlink.h, struct rtmsg and its attributes).
func appendRoute(b []byte, to netip.Prefix, via netip.Addr, index int) []byte {
	const size = unix.SizeofNlMsghdr + unix.SizeofRtMsg + 3*(unix.SizeofRtAttr+4)
	native := binary.NativeEndian
	b = native.AppendUint32(b, size)
	b = native.AppendUint16(b, unix.RTM_NEWROUTE)
	b = native.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b = append(b, make([]byte, 8)...) // sequence number and sender
	b = append(b, unix.AF_INET, byte(to.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST)
	b = native.AppendUint32(b, 0)
	attribute := func(kind uint16, value [4]byte) {
		b = native.AppendUint16(b, unix.SizeofRtAttr+4)
		b = append(native.AppendUint16(b, kind), value[:]...)
	}
	attribute(unix.RTA_DST, to.Masked().Addr().As4())
	attribute(unix.RTA_GATEWAY, via.As4())
	attribute(unix.RTA_OIF, [4]byte(native.AppendUint32(nil, uint32(index))))
	return b
}

// transact sends netlink messages in one system call, and waits for the answer to the last message, which must request one. The kernel answers the
// others only if they fail. transact returns the first error.
func transact(s *nl.NetlinkSocket, messages []byte) error {
	if err := unix.Sendto(s.GetFd(), messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answers, _, err := s.Receive()
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 {
			return errors.New("unexpected answer")
		}
		if code := int32(binary.NativeEndian.Uint32(a.Data)); code != 0 {
			return unix.Errno(-code)
		}
	}
	return nil
}
