// SPDX-License-Identifier: Apache-2.0

package ir

import "net/netip"

// Protection protects a service from floods of SYNs and ACKs. It applies to the packets that its rule passes. It does not change the rule's verdict.
// While there are too many SYNs, each is answered with a SYN cookie (RFC 4987, 3.6). Packets that belong to no connection are dropped, unless their
// client has just proved its address.
type Protection struct {
	Service  string
	Line     int          // in the policy file
	Col      int          // likewise, the column
	Ports    []Range      // of TCP, as values of packet.DPort
	Router   bool         // the service is behind this host
	Always   bool         // every SYN is answered with a cookie
	Start    int          // the limit, by its index in Program.Limits, of incomplete handshakes above which cookies begin; -1 with Always
	Stop     int          // the limit below which cookies end; -1 with Always
	Limits   []int        // limits of SYN-ACKs: SYNs that exceed one of them are dropped
	Displace int          // the limit of connections that a source prefix may remove from a full flow table
	Keyed    []int        // the limit of SYNs with TCP-AO or MD5 that pass to the kernel; empty: they are handled like all other SYNs
	MSS      uint16       // the announced MSS; 0: that of the host or the backends
	WScale   int          // the announced window scale; -1: likewise
	Flows    int          // the size of the flow table in connections
	Backends []netip.Addr // with Router: servers whose TCP options are queried
}

// Mode returns the policy's word for the place of the service: host or router.
func (p *Protection) Mode() string {
	if p.Router {
		return "router"
	}
	return "host"
}

// Outcome is the result for a packet of a protected service. Each has a counter.
type Outcome uint8

// The outcomes that are counted in addition to the rule.
const (
	SynAnswered      Outcome = iota // a SYN was answered with a cookie
	SynLimited                      // a SYN above the limit of SYN-ACKs was dropped
	AckProved                       // a valid cookie came back, so the connection begins
	AckInvalid                      // a packet that belongs to no connection was dropped
	AckAsked                        // XDP asked the kernel whether it has the connection
	SynAuthenticated                // a SYN with TCP-AO or MD5 was passed to the kernel
	NumOutcomes
)

// String returns the last part of the counter's name, after the name of the service.
func (o Outcome) String() string {
	return [...]string{SynAnswered: "answered", SynLimited: "limited", AckProved: "proved", AckInvalid: "invalid", AckAsked: "asked",
		SynAuthenticated: "authenticated"}[o]
}

// Drops reports whether packets with this outcome are dropped.
func (o Outcome) Drops() bool { return o == SynLimited || o == AckInvalid }
