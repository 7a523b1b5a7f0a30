package lab

import (
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

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
