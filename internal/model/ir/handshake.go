package ir

// CookieMethod is how connections of a protected service are answered. enum method in bpf/protection.h.
type CookieMethod uint32

// The methods.
const (
	MethodHost     CookieMethod = iota + 1 // our own cookie; the kernel is given the connection (bpf_sk_assign_tcp_reqsk, Linux 6.9)
	MethodListener                         // the cookie of the kernel's listening socket
	MethodRouter                           // the cookie of the kernel's SYNPROXY, which stands behind XDP
)

// Handshake is how this host begins connections of a protected service, as far as a policy does not say it: the loader finds
// it out. A program that nobody loads has UsualHandshake.
type Handshake struct {
	Method  CookieMethod
	MSS     [2]uint16           // to announce in IPv4 and IPv6
	WScale  uint8               // to announce
	Window  uint16              // to announce in a SYN-ACK, 0 for MethodRouter
	Options TCPOptions          // that the host, or the servers behind it, do
	Slots   [NumOutcomes]uint32 // the counter of each outcome
}

// TCPOptions are options of TCP that a SYN-ACK may offer when the SYN has them. Flags of struct protection in bpf/protection.h.
type TCPOptions uint32

// The options.
const (
	WindowScaling TCPOptions = 1 << iota
	SACK
	Timestamps
	ECN
)

// UsualHandshake is what is assumed of a host that nobody has looked at, as when a policy is only compiled. Outcomes are counted
// from slot on.
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
