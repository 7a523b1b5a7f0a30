package doctor

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// listener is a socket that serves.
type listener struct {
	proto   uint8 // unix.IPPROTO_TCP or UDP
	addr    netip.Addr
	port    uint16
	queued  uint32 // TCP: connections that wait to be accepted
	backlog uint32 // TCP: how many may wait
}

// From include/uapi/linux/inet_diag.h and include/net/tcp_states.h.
const (
	sockDiagByFamily = 20
	diagRequestSize  = 56 // struct inet_diag_req_v2
	diagMessageSize  = 72 // struct inet_diag_msg
	tcpClose         = 7  // the state of a UDP socket that is not connected
	tcpListen        = 10
)

// listeners asks the kernel for the sockets that serve TCP and UDP (sock_diag), which takes no rights. Connections are
// not looked at, however many there are.
func listeners(ctx context.Context) (list []listener, err error) {
	for _, ask := range []struct {
		proto uint8
		state uint32
	}{{unix.IPPROTO_TCP, tcpListen}, {unix.IPPROTO_UDP, tcpClose}} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			request := make([]byte, diagRequestSize)
			request[0], request[1] = family, ask.proto
			binary.NativeEndian.PutUint32(request[4:], 1<<ask.state)
			err := dump(ctx, unix.NETLINK_SOCK_DIAG, sockDiagByFamily, request, func(message []byte) bool {
				if len(message) >= diagMessageSize {
					list = append(list, newListener(ask.proto, message))
				}
				return true
			})
			if err != nil {
				return nil, fmt.Errorf("listing the sockets that serve: %w", err)
			}
		}
	}
	slices.SortFunc(list, func(a, b listener) int {
		return cmp.Or(cmp.Compare(a.proto, b.proto), cmp.Compare(a.port, b.port), a.addr.Compare(b.addr))
	})
	return list, nil
}

// newListener decodes struct inet_diag_msg. Ports and addresses are in network byte order.
func newListener(proto uint8, message []byte) listener {
	addr := netip.AddrFrom4([4]byte(message[8:]))
	if message[0] == unix.AF_INET6 {
		addr = netip.AddrFrom16([16]byte(message[8:]))
	}
	return listener{
		proto: proto, addr: addr, port: binary.BigEndian.Uint16(message[4:]),
		queued: binary.NativeEndian.Uint32(message[56:]), backlog: binary.NativeEndian.Uint32(message[60:]),
	}
}

// portName writes a port as policies do: tcp/80.
func portName(proto uint8, port uint16) string {
	if proto == unix.IPPROTO_TCP {
		return fmt.Sprintf("tcp/%d", port)
	}
	return fmt.Sprintf("udp/%d", port)
}
