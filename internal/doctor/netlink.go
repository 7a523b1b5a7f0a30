// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dump requests a list from the kernel and calls fn for each message until fn returns false. It then does not read the rest of the list, unlike the
// library's function. So reading a few entries of a table with millions of entries is cheap.
func dump(ctx context.Context, protocol int, kind uint16, body []byte, fn func(message []byte) bool) error {
	s, err := nl.Subscribe(protocol)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(int(kind), unix.NLM_F_DUMP)
	req.AddRawData(body)
	if err := s.Send(req); err != nil {
		return err
	}
	for ctx.Err() == nil {
		messages, _, err := s.Receive()
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE || m.Header.Type == unix.NLMSG_ERROR:
				return ended(m.Data)
			case !fn(m.Data):
				return nil
			}
		}
	}
	return ctx.Err()
}

// ended returns the error in the message that ends a list. It returns nil if the list is complete.
func ended(data []byte) error {
	if len(data) < 4 {
		return nil
	}
	if errno := int32(binary.NativeEndian.Uint32(data)); errno < 0 {
		return unix.Errno(-errno)
	}
	return nil
}
