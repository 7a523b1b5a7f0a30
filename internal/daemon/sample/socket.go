// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// socket samples the packets that arrive on a device.
type socket struct {
	device  *net.Interface
	fd      int
	dropped uint64
}

// waiting is the size of the socket's receive buffer, in bytes. A sample takes up to about 1 kB of the buffer, because the kernel counts the memory
// of the whole frame.
const waiting = 8 << 20

// openSocket makes a socket that receives nothing yet.
func openSocket(device *net.Interface) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EAFNOSUPPORT) { // EAFNOSUPPORT: from systemd's RestrictAddressFamilies
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

// begin starts to receive the packets that pass the filter.
func (s *socket) begin() error {
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: s.device.Index}); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	return nil
}

// Offsets at which a filter finds a random number and the type of the packet: SKF_AD_OFF + SKF_AD_RANDOM and SKF_AD_PKTTYPE of linux/filter.h.
const ancillaryRandom, ancillaryType = 1<<32 - 0x1000 + 56, 1<<32 - 0x1000 + 4

// filter sets the filter of the socket. The filter accepts arriving packets whose random number is not greater than `most`.
func (s *socket) filter(most uint32) error {
	const load, equal, above, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ, unix.BPF_JMP | unix.BPF_JGT, unix.BPF_RET
	list := []unix.SockFilter{
		{Code: load, K: ancillaryRandom},
		{Code: above, K: most, Jt: 3},
		{Code: load, K: ancillaryType},
		{Code: equal, K: unix.PACKET_OUTGOING, Jt: 1},
		{Code: end, K: 1 << 18}, // the whole frame: a truncated one would hide its length
		{Code: end, K: 0},
	}
	program := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fmt.Errorf("packet socket: its filter: %w", err)
	}
	return nil
}

// read reads a waiting sample, and puts its first bytes into frame. It returns false when no sample is waiting.
func (s *socket) read(frame []byte) (_ Sample, ok bool, err error) {
	n, _, err := unix.Recvfrom(s.fd, frame, unix.MSG_TRUNC|unix.MSG_DONTWAIT) // n is the length of the whole frame
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return Sample{}, false, nil
	case errors.Is(err, unix.ENETDOWN): // reported once when the device goes down; it may come up again
		return Sample{}, false, nil
	case err != nil:
		return Sample{}, false, fmt.Errorf("samples of device %s: %w", s.device.Name, err)
	}
	return Sample{Device: s.device.Name, Length: n, Frame: frame[:min(n, len(frame))]}, true, nil
}

// lost reads the kernel's count of lost samples, which restarts at each read.
func (s *socket) lost() (uint64, error) {
	stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, err
	}
	s.dropped += uint64(stats.Drops)
	return s.dropped, nil
}
