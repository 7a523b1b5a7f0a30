package netfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Event is a change of nftables by any process.
type Event struct {
	Table string // "" when events were lost: anything may have changed
	Set   string // whose elements changed, or ""
}

// eventBuffer is the size in bytes of the kernel's buffer for events. It holds those of one `nft flush ruleset` with some thousands of
// rules; if more are lost, the reader gets an error.
const eventBuffer = 1 << 20

// eventWait is how long Events waits for an event before it looks whether its context has ended.
const eventWait = 500 * time.Millisecond

// Events passes on changes of nftables in this network namespace until ctx ends: deleted tables, and new or deleted
// chains, rules, sets and elements (NFNLGRP_NFTABLES of the kernel's uapi/linux/netfilter/nfnetlink.h). iptables that is
// made of nftables changes the tables raw, mangle and filter.
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

// Messages of nftables that change what packets meet, of enum nf_tables_msg_types in uapi/linux/netfilter/nf_tables.h.
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
			names := attributes(data[header+generic : length])
			e := Event{Table: names[0]}
			if message == unix.NFT_MSG_NEWSETELEM || message == unix.NFT_MSG_DELSETELEM {
				e.Set = names[1]
			}
			if e.Table != "" {
				report(e)
			}
		}
		data = data[min(len(data), (length+3)&^3):]
	}
}

// attributeType is NLA_TYPE_MASK of uapi/linux/netlink.h.
const attributeType = 0x3fff

// attributes are the texts of attributes 1 and 2, "" for one that is absent. In all these messages the first is the name
// of the table (NFTA_TABLE_NAME, NFTA_CHAIN_TABLE and so on); in those about elements the second is that of the set.
func attributes(data []byte) (texts [2]string) {
	for len(data) >= unix.SizeofNlAttr {
		length, kind := int(binary.NativeEndian.Uint16(data)), binary.NativeEndian.Uint16(data[2:])&attributeType
		if length < unix.SizeofNlAttr || length > len(data) {
			return texts
		}
		if kind == 1 || kind == 2 {
			texts[kind-1] = unix.ByteSliceToString(data[unix.SizeofNlAttr:length])
		}
		data = data[min(len(data), (length+3)&^3):]
	}
	return texts
}
