package ir

import "net/netip"

// Protection is what keeps floods of SYNs and ACKs from a service. It changes no verdict: of the packets that a rule
// with one passes, SYNs are answered with a cookie (RFC 4987, 3.6) while there are too many of them, and what belongs
// to no connection that has proved its address is dropped.
type Protection struct {
	Service  string
	Line     int          // in the policy file
	Col      int          // likewise
	Ports    []Range      // of TCP, as values of packet.DPort
	Router   bool         // the service is behind this host
	Always   bool         // every SYN is answered so
	Start    int          // the limit in Program.Limits, of SYNs that are not completed, beyond which cookies begin; -1 with Always
	Stop     int          // below which they end, -1 with Always
	Limits   []int        // of SYN-ACKs: SYNs that exceed one of them are dropped
	Displace int          // the limit of connections that a prefix of sources displaces from the full table of those remembered
	Keyed    []int        // the limit of SYNs with TCP-AO or MD5 that are left to the kernel; without one they are as all others
	MSS      uint16       // announced; 0: what the host or the backends would
	WScale   int          // announced; -1: likewise
	Flows    int          // connections that are remembered at a time
	Backends []netip.Addr // of Router: who is asked for the options of its connections
}

// Mode is the policy's word for where the service lives: host or router.
func (p *Protection) Mode() string {
	if p.Router {
		return "router"
	}
	return "host"
}

// Outcome is what became of a packet of a protected service. Each has a counter.
type Outcome uint8

// The outcomes that are counted beside the rule.
const (
	SynAnswered      Outcome = iota // a SYN, with a cookie
	SynLimited                      // a SYN that would have been one SYN-ACK too many, dropped
	AckProved                       // a cookie came back: the connection begins
	AckInvalid                      // of no connection, dropped
	AckAsked                        // the kernel was asked whether it has the connection
	SynAuthenticated                // a SYN with TCP-AO or MD5, left to the kernel
	NumOutcomes
)

// String is the last part of the counter's name, behind that of the service.
func (o Outcome) String() string {
	return [...]string{SynAnswered: "answered", SynLimited: "limited", AckProved: "proved", AckInvalid: "invalid", AckAsked: "asked",
		SynAuthenticated: "authenticated"}[o]
}

// Drops reports whether packets with this outcome are dropped.
func (o Outcome) Drops() bool { return o == SynLimited || o == AckInvalid }
