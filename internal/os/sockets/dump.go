// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// From include/uapi/linux/inet_diag.h and include/net/tcp_states.h.
const (
	// MessageSize is the size in bytes of struct inet_diag_msg, the fixed start of each message. Attributes follow it.
	MessageSize = 72

	tcpClose  = 7 // the state of a UDP socket that is not connected
	tcpListen = 10
)

// request is struct inet_diag_req_v2.
type request struct {
	family, protocol, extensions uint8
	states                       uint32
}

func (r *request) Len() int { return 56 }

func (r *request) Serialize() []byte {
	b := make([]byte, r.Len())
	b[0], b[1], b[2] = r.family, r.protocol, r.extensions
	binary.NativeEndian.PutUint32(b[4:], r.states)
	return b
}

// Dump asks the kernel for the listening TCP sockets, or the unconnected UDP sockets, of both address families. It returns one message
// per socket, of at least MessageSize bytes. extensions has a bit for each requested attribute (INET_DIAG_*).
func Dump(proto, extensions uint8) (all [][]byte, err error) {
	states := uint32(1 << tcpListen)
	if proto == unix.IPPROTO_UDP {
		states = 1 << tcpClose
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		r := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		r.AddData(&request{family, proto, extensions, states})
		messages, err := r.Execute(unix.NETLINK_INET_DIAG, 0)
		if err != nil {
			return nil, fmt.Errorf("listing the sockets that serve: %w", err)
		}
		for _, m := range messages {
			if len(m) < MessageSize {
				return nil, fmt.Errorf("listing the sockets that serve: a message of %d bytes", len(m))
			}
		}
		all = append(all, messages...)
	}
	return all, nil
}
