package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// removeNftTable removes the tables of a name with all that is in them, those of both families in one transaction. It is no error when
// there is none.
func removeNftTable(table string) error {
	const tries = 10
	for range tries {
		var families []uint8
		for family, number := range nftFamilies {
			names, err := nftTables(family)
			if err != nil {
				return err
			}
			if slices.Contains(names, table) {
				families = append(families, number)
			}
		}
		if families == nil {
			return nil
		}
		err := deleteNftTables(table, families)
		if err == nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR) { // another has removed it, or something changed meanwhile
			return err
		}
	}
	return fmt.Errorf("removing table %s: others change nftables all the time", table)
}

// deleteNftTables is one transaction of nftables: messages between two that begin and end it (nfnetlink_rcv_batch in net/netfilter/nfnetlink.c).
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
		batch = append(batch, nftMessage(kind, unix.NLM_F_ACK, family, 0, textAttribute(unix.NFTA_TABLE_NAME, table))...)
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

// transactionMessage begins or ends a transaction of nftables.
func transactionMessage(kind int) []byte {
	return nftMessage(kind, 0, unix.NFPROTO_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
}

// nftMessage is a message of netlink with struct nfgenmsg.
func nftMessage(kind, flags int, family uint8, resource uint16, data ...nl.NetlinkRequestData) []byte {
	request := nl.NewNetlinkRequest(kind, flags)
	request.AddData(netfilterHead{family, resource})
	for _, d := range data {
		request.AddData(d)
	}
	b := request.Serialize()
	return append(b, make([]byte, -len(b)&3)...)
}

// acknowledged waits for so many answers, and returns the first error in them. One that refuses the transaction is the only answer.
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
