package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What this program is called as a process of UDP clients, and as their server.
const (
	talkName = "floodwall-talk"
	echoName = "floodwall-echo"
)

// talkMain is all that the process of clients does.
func talkMain() error { return clientsMain((*TalkOptions).run) }

// start runs the clients' process to its end, and reads what they got.
func (o *TalkOptions) start(ctx context.Context, s *TalkSummary) error {
	return o.Host.clients(ctx, talkName, o.CPU, o.Urgent, o, s)
}

// echoMain sends each datagram back, and answers the messages of those who join a game server, until the process is killed.
func echoMain() error {
	var (
		buffer [2048]byte
		from   unix.RawSockaddrInet4
		game   = newGameServer()
	)
	for {
		size := uint32(unsafe.Sizeof(from))
		// x/sys makes an address of each datagram, whose memory is to be collected.
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, serverFile, uintptr(unsafe.Pointer(&buffer)), uintptr(len(buffer)), 0,
			uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)))
		switch errno {
		case 0:
			n = uintptr(game.answer(buffer[:], int(n), &from))
			_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, serverFile, uintptr(unsafe.Pointer(&buffer)), n, 0, uintptr(unsafe.Pointer(&from)), uintptr(size))
		case unix.EINTR, unix.ECONNREFUSED:
		default:
			return fmt.Errorf("recvfrom: %w", errno)
		}
	}
}

// NewEchoProcess starts a UDP server in a process of its own that stays on one CPU with one of the priorities, and sends each datagram back
// that is no message of gameServer. It ends with the lab, or when the returned function is called, which returns what went wrong.
func (l *Lab) NewEchoProcess(h *Host, addr netip.AddrPort, cpu, priority int) (stop func() error, err error) {
	socket, err := h.datagramFile(addr)
	if err != nil {
		return nil, fmt.Errorf("udp server: %w", err)
	}
	return l.serve(h, "udp server", socket, role{name: echoName, cpu: cpu, priority: priority}), nil
}

// datagramFile opens a UDP socket in the host, as a file to hand to a process. Reading it waits.
func (h *Host) datagramFile(addr netip.AddrPort) (file *os.File, err error) {
	err = h.Do(func() error {
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			return err
		}
		defer c.Close()
		if file, err = c.File(); err == nil {
			err = unix.SetNonblock(int(file.Fd()), false)
		}
		return err
	})
	return file, err
}
