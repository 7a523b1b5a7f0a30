// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// removeNftTable removes the tables of a name in both families with all their content, in one transaction. It is not an error if there is none.
func removeNftTable(table string) error {
	const tries = 10
	for range tries {
		var families []uint8
		for _, family := range nftFamilies {
			there, err := nftable.Has(family, table)
			if err != nil {
				return err
			}
			if there {
				families = append(families, family)
			}
		}
		if families == nil {
			return nil
		}
		err := deleteNftTables(table, families)
		if err == nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR) { // another process has removed the table, or nftables has changed meanwhile
			return err
		}
	}
	return fmt.Errorf("removing table %s: others change nftables all the time", table)
}

// deleteNftTables deletes tables in one transaction of nftables. The messages of a transaction are between a message that starts it and one that ends
// it (nfnetlink_rcv_batch in net/netfilter/nfnetlink.c).
func deleteNftTables(table string, families []uint8) error {
	wrap := func(err error) error { return fmt.Errorf("removing table %s: %w", table, err) }
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return wrap(err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(toolLimit.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return wrap(err)
	}
	batch := transactionMessage(unix.NFNL_MSG_BATCH_BEGIN)
	for _, family := range families {
		const kind = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELTABLE
		batch = append(batch, nftMessage(kind, unix.NLM_F_ACK, family, 0, nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(table)))...)
	}
	batch = append(batch, transactionMessage(unix.NFNL_MSG_BATCH_END)...)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return wrap(err)
	}
	if err := acknowledged(fd, len(families)); err != nil {
		return wrap(err)
	}
	return nil
}

// transactionMessage returns the message that starts or ends a transaction of nftables, depending on kind.
func transactionMessage(kind int) []byte {
	return nftMessage(kind, 0, unix.NFPROTO_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
}

// nftMessage returns a netlink message that starts with struct nfgenmsg.
func nftMessage(kind, flags int, family uint8, resource uint16, data ...nl.NetlinkRequestData) []byte {
	request := nl.NewNetlinkRequest(kind, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0, ResId: nl.Swap16(resource)})
	for _, d := range data {
		request.AddData(d)
	}
	b := request.Serialize()
	return append(b, make([]byte, -len(b)&3)...)
}

// acknowledged waits for the given number of answers, and returns the first error in them. If the transaction is refused, there is only one answer.
func acknowledged(fd, number int) error {
	buffer := make([]byte, 1<<14)
	for number > 0 {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return err
		}
		for data := buffer[:n]; len(data) >= unix.NLMSG_HDRLEN+4; number-- {
			if binary.NativeEndian.Uint16(data[4:]) != unix.NLMSG_ERROR {
				return errors.New("an answer that says neither yes nor no")
			}
			if errno := int32(binary.NativeEndian.Uint32(data[unix.NLMSG_HDRLEN:])); errno < 0 {
				return unix.Errno(-errno)
			}
			data = data[min(len(data), (int(binary.NativeEndian.Uint32(data))+3)&^3):]
		}
	}
	return nil
}
