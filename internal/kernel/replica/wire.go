// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lastType is the EtherType of a frame that marks the end. When this frame arrives, the kernel has processed all frames before it. The type is
// reserved for local experiments (IEEE 802, section 9.2.3).
const lastType = 0x88b5

// ethernetHeader is the length of an Ethernet header in bytes.
const ethernetHeader = 14

// arrival is the longest time that a frame may take to the other end of a veth pair.
const arrival = 5 * time.Second

// send sends a frame to a device, and waits until the kernel has processed it. All processing runs on one CPU, whose queue of received frames
// preserves the order of the frames.
func send(device string, frame []byte) error {
	if err := oneCPU(); err != nil {
		return fmt.Errorf("binding the thread to a CPU: %w", err)
	}
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	last := packetSocket(lastType, dev.Attrs().Index)
	defer last.close()
	wire := packetSocket(0, dev.Attrs().ParentIndex)
	defer wire.close()
	if err := errors.Join(last.err, wire.err); err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	sentinel := make([]byte, 60)
	copy(sentinel, dev.Attrs().HardwareAddr)
	sentinel[12], sentinel[13] = lastType>>8, lastType&0xff
	for _, f := range [][]byte{frame, sentinel} {
		if err := unix.Sendto(wire.fd, f, 0, &unix.SockaddrLinklayer{Ifindex: dev.Attrs().ParentIndex}); err != nil {
			return fmt.Errorf("sending the frame: %w", err)
		}
	}
	return last.wait()
}

// oneCPU binds the calling thread to the first CPU that it may use.
func oneCPU() error {
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	for cpu := range len(may) * 64 {
		if may.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	return unix.SchedSetaffinity(0, &one)
}

// socket is a packet socket, or the error of opening it.
type socket struct {
	fd  int
	err error
}

// packetSocket opens a packet socket that receives frames of one EtherType from a device. If etherType is 0, the socket only sends.
func packetSocket(etherType uint16, device int) socket {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return socket{-1, err}
	}
	if etherType != 0 {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: etherType<<8 | etherType>>8, Ifindex: device})
	}
	return socket{fd, err}
}

// wait waits for a frame.
func (s socket) wait() error {
	poll := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	for end := time.Now().Add(arrival); ; {
		n, err := unix.Poll(poll, max(0, int(time.Until(end).Milliseconds())))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for the frame: %w", err)
		case n == 0:
			return fmt.Errorf("the frame has not arrived after %v", arrival)
		default:
			return nil
		}
	}
}

func (s socket) close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
	}
}
