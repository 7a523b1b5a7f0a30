package doctor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dump asks the kernel for a list and calls fn for each of its messages until it returns false. Unlike the library's
// own way it leaves the rest of a list in the kernel, so that a table of millions of entries costs what is looked at.
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

// ended is the error at the end of a list, nil if it is whole.
func ended(data []byte) error {
	if len(data) < 4 {
		return nil
	}
	if errno := int32(binary.NativeEndian.Uint32(data)); errno < 0 {
		return unix.Errno(-errno)
	}
	return nil
}

// attributeType is NLA_TYPE_MASK: the two upper bits of a type are flags.
const attributeType = 0x3fff

// attributes iterates over netlink attributes: type without flags, and value. It ends at the first that does not fit.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			kind := binary.NativeEndian.Uint16(b[2:]) & attributeType
			if size < unix.SizeofNlAttr || size > len(b) || !yield(kind, b[unix.SizeofNlAttr:size]) {
				return
			}
			b = b[min(len(b), (size+3)&^3):]
		}
	}
}

// attribute returns the value of the attribute of a type, nil if there is none.
func attribute(b []byte, kind uint16) []byte {
	for k, value := range attributes(b) {
		if k == kind {
			return value
		}
	}
	return nil
}

// name is an attribute's text, without the byte that ends it.
func name(value []byte) string {
	if n := len(value); n > 0 && value[n-1] == 0 {
		value = value[:n-1]
	}
	return string(value)
}

// bigEndian is a number as netfilter sends it.
func bigEndian(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// netfilterHead is struct nfgenmsg, with which requests to netfilter begin.
func netfilterHead(family uint8) []byte { return []byte{family, unix.NFNETLINK_V0, 0, 0} }

// afterHead cuts off struct nfgenmsg.
func afterHead(message []byte) (family uint8, rest []byte, err error) {
	if len(message) < 4 {
		return 0, nil, fmt.Errorf("a message of %d bytes", len(message))
	}
	return message[0], message[4:], nil
}
