package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// socket takes samples of what comes to a device.
type socket struct {
	device  *net.Interface
	fd      int
	dropped uint64
}

// waiting is the socket's memory for packets that wait, in bytes. A sample takes at most about 1 kB of it, for the kernel counts what it
// has for the whole frame.
const waiting = 8 << 20

// openSocket makes a socket that takes nothing yet.
func openSocket(device *net.Interface) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EAFNOSUPPORT) { // EAFNOSUPPORT: RestrictAddressFamilies of systemd
		return nil, wording.WithHint(fmt.Errorf("packet socket: %w", err),
			"packet sockets take CAP_NET_RAW, which the daemon does not have under its systemd unit: run the command as root")
	}
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, waiting); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return &socket{device: device, fd: fd}, nil
}

// begin has the socket take what its filter draws.
func (s *socket) begin() error {
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: s.device.Index}); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	return nil
}

// filter has the socket draw packets that come in and whose random number is at most this.
func (s *socket) filter(most uint32) error {
	const outgoing = 4 // PACKET_OUTGOING of linux/if_packet.h
	code, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtRand},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: most, SkipTrue: 3},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: outgoing, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 18}, // all of the frame: how long it is would be lost with a part
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return fmt.Errorf("packet socket: its filter: %w", err)
	}
	list := make([]unix.SockFilter, len(code))
	for i, c := range code {
		list[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	program := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fmt.Errorf("packet socket: its filter: %w", err)
	}
	return nil
}

// read takes a sample that waits, with its first bytes in frame. It returns false when none does.
func (s *socket) read(frame []byte) (_ Sample, ok bool, err error) {
	n, _, err := unix.Recvfrom(s.fd, frame, unix.MSG_TRUNC|unix.MSG_DONTWAIT) // n counts all of the frame
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return Sample{}, false, nil
	case errors.Is(err, unix.ENETDOWN): // said once when the device goes down; it may come back
		return Sample{}, false, nil
	case err != nil:
		return Sample{}, false, fmt.Errorf("samples of device %s: %w", s.device.Name, err)
	}
	return Sample{Device: s.device.Name, Length: n, Frame: frame[:min(n, len(frame))]}, true, nil
}

// lost asks the kernel, which begins to count anew each time.
func (s *socket) lost() (uint64, error) {
	stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, err
	}
	s.dropped += uint64(stats.Drops)
	return s.dropped, nil
}
