// SPDX-License-Identifier: Apache-2.0

package ir

// CookieMethod is the kind of SYN cookies with which SYNs to a protected service are answered: enum method in bpf/protection.h.
type CookieMethod uint32

// The methods.
const (
	MethodHost     CookieMethod = iota + 1 // a cookie of Floodwall; the kernel takes over the connection (bpf_sk_assign_tcp_reqsk, Linux 6.9)
	MethodListener                         // the cookie of the kernel's listening socket
	MethodRouter                           // the cookie of the kernel's SYNPROXY, which gets the packets after XDP
)

// Handshake has parameters for the handshakes of a protected service that the policy does not set. The loader determines them. If a program is not
// loaded, UsualHandshake gives them.
type Handshake struct {
	Method  CookieMethod
	MSS     [2]uint16           // the announced MSS in IPv4 and in IPv6
	WScale  uint8               // the announced window scale
	Window  uint16              // the announced window of a SYN-ACK; 0 for MethodRouter
	Options TCPOptions          // options that the host supports, or the servers behind it
	Slots   [NumOutcomes]uint32 // the slot of the counter of each outcome
}

// TCPOptions is a set of TCP options that a SYN-ACK may offer if the SYN has them. The bits are flags of struct protection in bpf/protection.h.
type TCPOptions uint32

// The options.
const (
	WindowScaling TCPOptions = 1 << iota
	SACK
	Timestamps
	ECN
)

// UsualHandshake returns the parameters for an unknown host, for example if a policy is only compiled. slot is the first slot of the outcomes'
// counters.
func UsualHandshake(p *Protection, slot uint32) Handshake {
	found := Handshake{Method: MethodHost, MSS: [2]uint16{1460, 1440}, WScale: 7, Window: 64240, Options: WindowScaling | SACK | Timestamps | ECN}
	if p.Router {
		found.Method, found.Window = MethodRouter, 0
	}
	for i := range found.Slots {
		found.Slots[i] = slot + uint32(i)
	}
	return found
}
