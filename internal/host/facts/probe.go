// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offer has the options in a server's SYN-ACK. The client offers all options that are switched on in this host's kernel. An option that is switched
// off here (net.ipv4.tcp_sack and so on) is not detected. ECN is detected only if this host asks for it (tcp_ecn is 1).
type Offer struct {
	MSS        uint16 // the announced MSS
	WScale     int    // -1: no window scaling
	SACK       bool
	Timestamps bool
	ECN        bool
}

// patience is the time that Probe waits for the answer of a server. A lost SYN and a lost neighbour solicitation are sent again after one second (RFC
// 6298, section 2; RFC 4861, section 10), so one lost packet does not make a server silent.
const patience = 2500 * time.Millisecond

// Probe connects to a server, returns the options of its SYN-ACK, and closes the connection.
func Probe(ctx context.Context, to netip.AddrPort) (Offer, error) {
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return Offer{}, fmt.Errorf("backend %s: %w", to, err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return Offer{}, fmt.Errorf("backend %s: %w", to, err)
	}
	var o Offer
	var inner error
	if err = raw.Control(func(fd uintptr) { o, inner = offer(int(fd)) }); err == nil {
		err = inner
	}
	if err != nil {
		return Offer{}, fmt.Errorf("backend %s: %w", to, err)
	}
	return o, nil
}

// Offsets in struct tcp_info of linux/tcp.h, and the bits of its options.
const (
	infoSize    = 8
	infoOptions = 5 // offset of tcpi_options
	infoScales  = 6 // offset of tcpi_snd_wscale, in the lower half of the byte

	optTimestamps = 1
	optSACK       = 2
	optWScale     = 4
	optECN        = 8
)

// offer returns the negotiated options of a connected socket.
func offer(fd int) (o Offer, err error) {
	var info [infoSize]byte
	size := uint32(len(info))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return o, fmt.Errorf("TCP_INFO: %w", errno)
	}
	options := info[infoOptions]
	o = Offer{WScale: -1, SACK: options&optSACK != 0, Timestamps: options&optTimestamps != 0, ECN: options&optECN != 0}
	if options&optWScale != 0 {
		o.WScale = int(info[infoScales] & 0xf)
	}
	o.MSS, err = announcedMSS(fd)
	return o, err
}

// announcedMSS returns the MSS that the other end has announced. TCP_MAXSEG normally returns the MSS that this end uses, which the route and the
// options may reduce. For a socket in repair mode TCP_MAXSEG returns the announced MSS (do_tcp_getsockopt in net/ipv4/tcp.c). The socket must leave
// repair mode before it is closed.
func announcedMSS(fd int) (mss uint16, err error) {
	const on, off = 1, -1 // TCP_REPAIR_ON, and TCP_REPAIR_OFF_NO_WP: send nothing
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, on); err != nil {
		return 0, fmt.Errorf("TCP_REPAIR: %w", err)
	}
	n, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	if offErr := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, off); err == nil {
		err = offErr
	}
	if err != nil {
		return 0, fmt.Errorf("TCP_MAXSEG: %w", err)
	}
	return uint16(n), nil
}
