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

// Offer is what a server's SYN-ACK offers to a client that offers all this host's kernel does: an option that is
// switched off here (net.ipv4.tcp_sack and so on) is not seen. ECN is seen where this host asks for it (tcp_ecn is 1).
type Offer struct {
	MSS        uint16 // as announced
	WScale     int    // -1: no window scaling
	SACK       bool
	Timestamps bool
	ECN        bool
}

// patience is how long a server has to answer.
const patience = time.Second

// Probe connects to a server and closes the connection again.
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

// The first bytes of struct tcp_info of linux/tcp.h, and its options.
const (
	infoSize    = 8
	infoOptions = 5 // where tcpi_options is
	infoScales  = 6 // where tcpi_snd_wscale is, in the low half

	optTimestamps = 1
	optSACK       = 2
	optWScale     = 4
	optECN        = 8
)

// offer reads what was negotiated on a connected socket.
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

// announcedMSS is the MSS that the other end has announced. TCP_MAXSEG says what this end sends, cut by the route and by
// options, but to a socket in repair (do_tcp_getsockopt in net/ipv4/tcp.c), as which it must not be closed.
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
