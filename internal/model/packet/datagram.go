// SPDX-License-Identifier: Apache-2.0

package packet

import "encoding/binary"

// Datagrams is a protocol of UDP services whose datagrams Floodwall parses. Each end chooses an identifier, which the datagrams to that end must
// contain. So a sender that knows the identifier has received a datagram from that end, at an address of its own.
type Datagrams uint8

// The protocols. bpf/datagram.h has the same numbers.
const (
	Generic   Datagrams = iota // any protocol: the payload is not parsed
	WireGuard                  // https://www.wireguard.com/papers/wireguard.pdf, 5.4
	QUIC                       // RFC 9000, 17; versions 1 and 2 (RFC 9369)
	A2S                        // https://developer.valvesoftware.com/wiki/Server_queries, together with other datagrams of the game
	RakNet                     // https://github.com/vp817/RakNetProtocolDoc, of Minecraft Bedrock and other games
)

// String returns the policy's word for d.
func (d Datagrams) String() string {
	return [...]string{Generic: "generic", WireGuard: "wireguard", QUIC: "quic", A2S: "a2s", RakNet: "raknet"}[d]
}

// Lengths in bytes.
const (
	leastWireGuard = 32 // of a packet without data
	leastQUIC      = 21 // RFC 9000, 10.3
	LeastID        = 4  // of an identifier: a shorter one might be guessed
	MostID         = 20
)

// Messages of WireGuard: the first four bytes, the last three of which are 0.
const (
	wireguardInitiation = 1
	wireguardResponse   = 2
	wireguardCookie     = 3
	wireguardData       = 4
)

// Least returns the length of the shortest datagram with an identifier, in bytes.
func (d Datagrams) Least() int {
	return [...]int{Generic: 0, WireGuard: leastWireGuard, QUIC: leastQUIC, A2S: leastA2S, RakNet: rakNetLong}[d]
}

// Challenged reports whether Floodwall answers queries or requests with a challenge, which a client sends back to prove its address. Game servers
// have such protocols.
func (d Datagrams) Challenged() bool { return d == A2S || d == RakNet }

// Chosen returns the identifier in a datagram that its sender has chosen. Later datagrams to the sender contain it. ok is false if there is none. A
// QUIC connection ID shorter than LeastID does not count.
func (d Datagrams) Chosen(payload []byte) (id []byte, ok bool) {
	switch d {
	case WireGuard:
		kind, length := wireguardKind(payload), len(payload)
		if kind == wireguardInitiation && length == 148 || kind == wireguardResponse && length == 92 {
			return payload[4:8], true
		}
	case QUIC:
		if len(payload) < leastQUIC || payload[0]&0x80 == 0 || binary.BigEndian.Uint32(payload[1:]) == 0 { // version negotiation repeats the client's
			return nil, false
		}
		theirs := int(payload[5])
		if theirs > MostID || len(payload) < 7+theirs {
			return nil, false
		}
		own := int(payload[6+theirs])
		if own < LeastID || own > MostID || len(payload) < 7+theirs+own {
			return nil, false
		}
		return payload[7+theirs:][:own], true
	case A2S:
		if a2sKind(payload) == a2sChallenge && len(payload) == leastA2S { // the answer to a player who connects is longer
			return payload[5:leastA2S], true
		}
	}
	return nil, false
}

// Sizes reports whether a datagram shows the length of its sender's identifiers. A QUIC Handshake packet does. An Initial does not: it may refuse a
// client and contain the identifier that the client chose.
func (d Datagrams) Sizes(payload []byte) bool {
	if d != QUIC || len(payload) < leastQUIC || payload[0]&0x80 == 0 {
		return false
	}
	handshake := byte(2)
	if binary.BigEndian.Uint32(payload[1:]) == quicV2 {
		handshake = 3
	}
	return payload[0]>>4&3 == handshake
}

// Named returns the identifier of the receiver in a datagram. A QUIC packet with a short header does not contain its
// length. So length is the length in bytes of the receiver's identifiers, 0 if it has none. ok is false if there is no
// identifier.
func (d Datagrams) Named(payload []byte, length int) (id []byte, ok bool) {
	switch d {
	case WireGuard:
		switch kind := wireguardKind(payload); {
		case kind == wireguardResponse && len(payload) == 92:
			return payload[8:12], true
		case kind == wireguardCookie && len(payload) == 64, kind == wireguardData:
			return payload[4:8], true
		}
	case QUIC:
		at := 1
		if len(payload) < leastQUIC {
			return nil, false
		}
		if payload[0]&0x80 != 0 {
			at, length = 6, int(payload[5])
		}
		if length < LeastID || length > MostID || len(payload) < at+length {
			return nil, false
		}
		return payload[at:][:length], true
	case A2S:
		if challenge, ok := query(payload); ok && len(challenge) > 0 {
			return challenge, true
		}
	case RakNet:
		return rakNetCookie(payload)
	}
	return nil, false
}

// Begins reports whether a datagram, by its form, may be the first one of a new client, or the first one of a client from a new address. It tests
// lengths, versions and bits with a fixed value.
func (d Datagrams) Begins(payload []byte) bool {
	switch d {
	case WireGuard: // only an initiation has no identifier; the index of the receiver is never 0
		return wireguardKind(payload) == wireguardInitiation && len(payload) == 148 &&
			binary.LittleEndian.Uint64(payload[116:])|binary.LittleEndian.Uint64(payload[124:]) != 0
	case QUIC:
		return quicBegins(payload)
	}
	return true
}

// wireguardKind returns the kind of a message, 0 for a datagram that is not a WireGuard message.
func wireguardKind(payload []byte) uint32 {
	if len(payload) < leastWireGuard {
		return 0
	}
	return binary.LittleEndian.Uint32(payload)
}

// quicVersions has the supported versions of QUIC, each with the type of an Initial packet. The type of a 0-RTT packet is one higher.
var quicVersions = map[uint32]byte{1: 0, quicV2: 1}

const quicV2 = 0x6b3343cf

// quicBegins reports whether a datagram may be the first one of a client, or the first from a new address of a client. It begins with an Initial or
// 0-RTT packet, or has a short header. The bit 0x40 must be 1 in all packets before a server allows other values (RFC 9287).
func quicBegins(payload []byte) bool {
	if len(payload) < leastQUIC || payload[0]&0x40 == 0 {
		return false
	}
	if payload[0]&0x80 == 0 {
		return true
	}
	initial, ok := quicVersions[binary.BigEndian.Uint32(payload[1:])]
	theirs, kind := int(payload[5]), payload[0]>>4&3
	if !ok || theirs < 8 || theirs > MostID || len(payload) < 7+theirs { // RFC 9000, 7.2: the client chooses at least 8 bytes
		return false
	}
	own := int(payload[6+theirs])
	return own <= MostID && (kind == initial && len(payload) >= 1200 || kind == initial+1)
}
