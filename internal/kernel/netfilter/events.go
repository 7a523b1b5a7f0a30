// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// Event is a change of nftables by any process.
type Event struct {
	Table string // the changed table; "" if events were lost, so that anything may have changed
	Set   string // the set whose elements have changed; "" for other changes
}

// eventBuffer is the size in bytes of the kernel's buffer for events. It is large enough for the events of one `nft flush ruleset` with some
// thousands of rules. When the buffer overflows, the reader gets an error.
const eventBuffer = 1 << 20

// eventWait is the time that Events waits for an event before it checks whether its context has ended.
const eventWait = 500 * time.Millisecond

// Events calls report for each change of nftables in this network namespace until ctx ends. Reported changes are deleted tables, and new or deleted
// chains, rules, sets and elements (NFNLGRP_NFTABLES of the kernel's uapi/linux/netfilter/nfnetlink.h). A change through iptables-nft is reported for
// the tables raw, mangle and filter.
func Events(ctx context.Context, report func(Event)) error {
	const wrap = "watching nftables: %w"
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf(wrap, err)
	}
	defer unix.Close(socket)
	wait := unix.NsecToTimeval(eventWait.Nanoseconds())
	err = errors.Join(
		unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptInt(socket, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES),
	)
	if err != nil {
		return fmt.Errorf(wrap, err)
	}
	buffer := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(socket, buffer, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			report(Event{})
		case err != nil:
			return fmt.Errorf(wrap, err)
		default:
			readEvents(buffer[:n], report)
		}
	}
	return nil
}

// changes are the message types of nftables that may change verdicts, from enum nf_tables_msg_types in uapi/linux/netfilter/nf_tables.h.
var changes = map[uint8]bool{
	unix.NFT_MSG_DELTABLE: true, unix.NFT_MSG_NEWCHAIN: true, unix.NFT_MSG_DELCHAIN: true, unix.NFT_MSG_NEWRULE: true,
	unix.NFT_MSG_DELRULE: true, unix.NFT_MSG_DELSET: true, unix.NFT_MSG_NEWSETELEM: true, unix.NFT_MSG_DELSETELEM: true,
}

// readEvents reads a datagram of netlink messages.
func readEvents(data []byte, report func(Event)) {
	const header, generic = unix.NLMSG_HDRLEN, 4 // struct nfgenmsg
	for len(data) >= header {
		length := int(binary.NativeEndian.Uint32(data))
		if length < header || length > len(data) {
			return
		}
		kind := binary.NativeEndian.Uint16(data[4:])
		if message := uint8(kind); kind>>8 == unix.NFNL_SUBSYS_NFTABLES && changes[message] && length >= header+generic {
			// The first attribute of all these messages is the name of the table. In messages about elements, the second attribute is the name of the
			// set.
			a, err := nftable.ReadAnswer(data[header:length])
			e := Event{Table: a.Text(unix.NFTA_SET_ELEM_LIST_TABLE)}
			if message == unix.NFT_MSG_NEWSETELEM || message == unix.NFT_MSG_DELSETELEM {
				e.Set = a.Text(unix.NFTA_SET_ELEM_LIST_SET)
			}
			if err == nil && e.Table != "" {
				report(e)
			}
		}
		data = data[min(len(data), (length+3)&^3):]
	}
}
