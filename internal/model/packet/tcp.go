// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

const tcpHeader = 20 // bytes, without options

// The TCP flags (RFC 9293, 3.1; ECE and CWR: RFC 3168).
const (
	tcpFIN = 1 << iota
	tcpSYN
	tcpRST
	tcpPSH
	tcpACK
	tcpURG
	tcpECE
	tcpCWR
)

// TCP option kinds (IANA).
const (
	tcpOptEnd       = 0
	tcpOptNop       = 1
	tcpOptMSS       = 2
	tcpOptWinScale  = 3
	tcpOptSACK      = 4
	tcpOptTimestamp = 8
)

// tcp parses a TCP header at the start of b.
func (p *Packet) tcp(b []byte) {
	if len(b) < tcpHeader {
		p.short()
		return
	}
	flags, size := b[13], int(b[12]>>4)*4
	p.ports(b, 0)
	p.Value[Flags] = uint32(flags)
	if flags&tcpSYN != 0 {
		p.Value[MSS] = mss(b, size)
	}
	p.failIf(size < tcpHeader, TCPHeader)
	if size > len(b) {
		p.tcpPastEnd()
	} else if size >= tcpHeader {
		p.Payload = b[size:]
	}
	p.failIf(!ValidFlags(flags), TCPFlags)
	p.failIf(p.Value[SPort] == 0 || p.Value[DPort] == 0, PortZero)
	p.failIf(flags&tcpACK != 0 && binary.BigEndian.Uint32(b[8:]) == 0, ACKZero)
	if flags&(tcpSYN|tcpACK) == tcpSYN {
		p.syn(b, size)
	}
}

// tcpPastEnd records that the header is longer than the packet.
func (p *Packet) tcpPastEnd() {
	if p.Value[Fragment] == FragmentFirst {
		p.fail(TinyFragment)
	} else {
		p.fail(TCPHeader)
	}
}

// ValidFlags reports whether a TCP stack can send this combination of flags (tcp_valid_flags in the kernel's net/netfilter/nf_conntrack_proto_tcp.c).
func ValidFlags(flags byte) bool {
	switch flags &^ (tcpPSH | tcpECE | tcpCWR) {
	case tcpSYN, tcpSYN | tcpURG, tcpSYN | tcpACK,
		tcpRST, tcpRST | tcpACK,
		tcpFIN | tcpACK, tcpFIN | tcpACK | tcpURG,
		tcpACK, tcpACK | tcpURG:
		return true
	}
	return false
}

// syn runs the checks of a SYN without ACK. size is the header length in bytes that the header states.
func (p *Packet) syn(b []byte, size int) {
	p.failIf(len(b) > size, SYNData)
	p.failIf(p.Value[SPort] < 1024, SYNLowPort)
	p.failIf(binary.BigEndian.Uint16(b[14:]) == 0, SYNWindowZero)
	if size >= tcpHeader && size <= len(b) {
		mss, ok := readTCPOptions(b[tcpHeader:size])
		p.failIf(!ok, TCPOptions)
		p.failIf(!mss, SYNNoMSS)
	}
}

// readTCPOptions parses TCP options. mss reports whether there is an MSS option, of any length. ok reports whether all lengths are valid.
func readTCPOptions(b []byte) (mss, ok bool) {
	for len(b) > 0 && b[0] != tcpOptEnd {
		if b[0] == tcpOptNop {
			b = b[1:]
			continue
		}
		n, fits := optionLength(b)
		if !fits {
			return mss, false
		}
		mss = mss || b[0] == tcpOptMSS
		b = b[n:]
	}
	return mss, true
}

// mss returns the value of the first MSS option, or MSSMissing if there is none. An option with an invalid length ends the options. If the header is
// longer than the packet, no option is read. size is the header length in bytes that the header states.
func mss(b []byte, size int) uint32 {
	if size > len(b) {
		return MSSMissing
	}
	for b = b[min(tcpHeader, size):size]; len(b) > 0 && b[0] != tcpOptEnd; {
		n, fits := 1, true
		if b[0] != tcpOptNop {
			n, fits = optionLength(b)
		}
		switch {
		case !fits:
			return MSSMissing
		case b[0] == tcpOptMSS && n == 4:
			return uint32(binary.BigEndian.Uint16(b[2:]))
		}
		b = b[n:]
	}
	return MSSMissing
}

// ports parses the two ports at the start of a TCP or UDP header. base is 0 for TCP and PortUDP for UDP.
func (p *Packet) ports(b []byte, base uint32) {
	p.Value[SPort] = base + uint32(binary.BigEndian.Uint16(b))
	p.Value[DPort] = base + uint32(binary.BigEndian.Uint16(b[2:]))
}
