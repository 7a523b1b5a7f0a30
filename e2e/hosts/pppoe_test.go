// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// pppoe makes the device ppp0 of a place. Its packets are in the frames of a PPPoE session with the peer that has the given Ethernet address. A host
// would negotiate the session by frames of its own; here both ends know its number.
func (s *scene) pppoe(place, device string, peer net.HardwareAddr) {
	s.Helper()
	var open []int
	s.Cleanup(func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	})
	var err error
	s.places[place].Do(func() { open, err = openSession(device, peer) })
	if err != nil {
		s.Fatalf("PPPoE on %s of %s: %v", device, place, err)
	}
	s.sh(place + " ip link set ppp0 mtu 1492 up") // 8 bytes of a frame are the header of PPPoE and the protocol of PPP
}

// openSession opens a PPPoE session, and connects it to the new device ppp0. The device exists until the returned descriptors are closed.
func openSession(device string, peer net.HardwareAddr) (open []int, err error) {
	const (
		protocol = 0 // PX_PROTO_OE of include/uapi/linux/if_pppox.h
		session  = 5
		unit     = 0 // the number in the device's name
	)
	socket, err := unix.Socket(unix.AF_PPPOX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	open = append(open, socket)
	if err := unix.Connect(socket, &unix.SockaddrPPPoE{SID: session, Remote: peer, Dev: device}); err != nil {
		return open, fmt.Errorf("connect: %w", err)
	}
	channel, err := unix.IoctlGetUint32(socket, unix.PPPIOCGCHAN)
	if err != nil {
		return open, fmt.Errorf("number of the channel: %w", err)
	}
	var ends [2]int // the channel and the device
	for i := range ends {
		if ends[i], err = unix.Open("/dev/ppp", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return open, fmt.Errorf("/dev/ppp: %w", err)
		}
		open = append(open, ends[i])
	}
	return open, errors.Join(
		unix.IoctlSetPointerInt(ends[0], unix.PPPIOCATTCHAN, int(channel)),
		unix.IoctlSetPointerInt(ends[1], unix.PPPIOCNEWUNIT, unit),
		unix.IoctlSetPointerInt(ends[0], unix.PPPIOCCONNECT, unit),
	)
}
