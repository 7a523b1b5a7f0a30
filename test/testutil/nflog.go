// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Constants of include/uapi/linux/netfilter/nfnetlink_log.h and nfnetlink.h.
const (
	nfnlSubsysULOG  = 4
	nfulnlMsgPacket = 0
	nfulnlMsgConfig = 1

	nfulaMark   = 2
	nfulaPrefix = 10

	nfulaCfgCmd    = 1
	nfulaCfgMode   = 2
	nfulaCfgQthres = 5

	nfulnlCfgCmdBind  = 1
	nfulnlCopyMeta    = 1
	nfulnlQueueNow    = 1
	receiveBuffer     = 64 << 20
	netlinkHeaderSize = 16
	nfgenmsgSize      = 4
)

// logPatience is the longest time to wait for a logged packet. A machine that is not busy logs it at once.
const logPatience = time.Minute

// logged is a packet that matched a rule with `log group`.
type logged struct {
	mark   uint32
	prefix string
}

// logReader reads the packets that netfilter logs to one group.
type logReader struct {
	socket int
	buffer []byte
}

// openLog binds a log group of this network namespace.
func openLog(group uint16) (*logReader, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("log socket: %w", err)
	}
	r := &logReader{s, make([]byte, 1<<20)}
	unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	mode := []byte{0, 0, 0, 0, nfulnlCopyMeta, 0}
	now := binary.BigEndian.AppendUint32(nil, nfulnlQueueNow)
	for _, attr := range [][]byte{
		attribute(nfulaCfgCmd, []byte{nfulnlCfgCmdBind}), attribute(nfulaCfgMode, mode), attribute(nfulaCfgQthres, now),
	} {
		if err := r.configure(group, attr); err != nil {
			unix.Close(s)
			return nil, fmt.Errorf("log group %d: %w", group, err)
		}
	}
	return r, nil
}

func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// configure sends one request and reads the acknowledgment, which has a negative errno.
func (r *logReader) configure(group uint16, attr []byte) error {
	b := binary.NativeEndian.AppendUint32(nil, uint32(netlinkHeaderSize+nfgenmsgSize+len(attr)))
	b = binary.NativeEndian.AppendUint16(b, nfnlSubsysULOG<<8|nfulnlMsgConfig)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = append(b, make([]byte, 8)...) // sequence number, port
	b = append(b, unix.AF_UNSPEC, 0)  // struct nfgenmsg: family, version
	b = append(binary.BigEndian.AppendUint16(b, group), attr...)
	if err := unix.Sendto(r.socket, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for {
		n, _, err := unix.Recvfrom(r.socket, r.buffer, 0)
		if err != nil {
			return err
		}
		if n >= netlinkHeaderSize+4 && binary.NativeEndian.Uint16(r.buffer[4:]) == unix.NLMSG_ERROR {
			if errno := int32(binary.NativeEndian.Uint32(r.buffer[netlinkHeaderSize:])); errno != 0 {
				return unix.Errno(-errno)
			}
			return nil
		}
	}
}

// read calls f for each logged packet until f returns true.
func (r *logReader) read(f func(logged) (done bool)) error {
	tv := unix.NsecToTimeval(logPatience.Nanoseconds())
	if err := unix.SetsockoptTimeval(r.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return err
	}
	for {
		n, _, err := unix.Recvfrom(r.socket, r.buffer, 0)
		switch err {
		case nil:
			if messages(r.buffer[:n], f) {
				return nil
			}
		case unix.EAGAIN:
			return fmt.Errorf("reading the log: nothing for %v, and not all was logged", logPatience)
		case unix.EINTR:
		default:
			return fmt.Errorf("reading the log: %w", err)
		}
	}
}

// messages parses netlink messages, and calls f for each logged packet. It reports whether f has returned true.
func messages(b []byte, f func(logged) (done bool)) (done bool) {
	for len(b) >= netlinkHeaderSize+nfgenmsgSize {
		size := int(binary.NativeEndian.Uint32(b))
		if size < netlinkHeaderSize+nfgenmsgSize || size > len(b) {
			return false
		}
		if binary.NativeEndian.Uint16(b[4:]) == nfnlSubsysULOG<<8|nfulnlMsgPacket {
			done = f(readLogged(b[netlinkHeaderSize+nfgenmsgSize:size])) || done
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return done
}

func readLogged(attrs []byte) (l logged) {
	for len(attrs) >= 4 {
		size := int(binary.NativeEndian.Uint16(attrs))
		if size < 4 || size > len(attrs) {
			break
		}
		value := attrs[4:size]
		switch binary.NativeEndian.Uint16(attrs[2:]) & 0x3fff { // without the flags of nested and of network byte order
		case nfulaMark:
			l.mark = binary.BigEndian.Uint32(value)
		case nfulaPrefix:
			l.prefix = string(value[:max(0, len(value)-1)])
		}
		attrs = attrs[min(len(attrs), (size+3)&^3):]
	}
	return l
}

func (r *logReader) close() { unix.Close(r.socket) }
