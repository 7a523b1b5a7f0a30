package packet

import "encoding/binary"

// Datagrams is a protocol of UDP services whose datagrams Floodwall reads. Both ends of it choose identifiers: what is sent to an end has the
// identifier that this end has chosen, so a sender who has it has got a datagram from there, at an address of his.
type Datagrams uint8

// The protocols. bpf/datagram.h has the same numbers.
const (
	Generic   Datagrams = iota // any: nothing is read
	WireGuard                  // https://www.wireguard.com/papers/wireguard.pdf, 5.4
	QUIC                       // RFC 9000, 17; versions 1 and 2 (RFC 9369)
	A2S                        // https://developer.valvesoftware.com/wiki/Server_queries, with other datagrams of a game beside
	RakNet                     // https://github.com/vp817/RakNetProtocolDoc, of Minecraft Bedrock and other games
)

// String is the word of the policy.
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

// Least is the length of the shortest datagram with an identifier, in bytes.
func (d Datagrams) Least() int {
	return [...]int{Generic: 0, WireGuard: leastWireGuard, QUIC: leastQUIC, A2S: leastA2S, RakNet: rakNetLong}[d]
}

// Chosen returns the identifier that the sender of a datagram has chosen and says in it: what is sent to him has it from then on. ok is false
// if it says none. A connection ID of QUIC that is not LeastID long is none.
func (d Datagrams) Chosen(payload []byte) (id []byte, ok bool) {
	switch d {
	case WireGuard:
		kind, length := wireguardKind(payload), len(payload)
		if kind == wireguardInitiation && length == 148 || kind == wireguardResponse && length == 92 {
			return payload[4:8], true
		}
	case QUIC:
		if len(payload) < leastQUIC || payload[0]&0x80 == 0 || binary.BigEndian.Uint32(payload[1:]) == 0 { // version negotiation: it has the client's
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
		if a2sKind(payload) == a2sChallenge && len(payload) == leastA2S { // what answers a player who connects is longer
			return payload[5:leastA2S], true
		}
	}
	return nil, false
}

// Sizes reports whether a datagram tells how long the identifiers of its sender are. A Handshake packet of QUIC does. An Initial may refuse a client,
// and have the identifier that the client chose.
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

// Named returns the identifier of the receiver that a datagram has. A short packet of QUIC does not say how long it is:
// length, in bytes, is that of the receiver's identifiers, 0 if he has none. ok is false if there is no identifier.
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

// Begins reports whether a datagram may be the first of somebody who begins to talk, or goes on to talk from another address, by its form:
// lengths, versions and bits with one value.
func (d Datagrams) Begins(payload []byte) bool {
	switch d {
	case WireGuard: // only an initiation needs no identifier. The code of the receiver's public key is never 0.
		return wireguardKind(payload) == wireguardInitiation && len(payload) == 148 &&
			binary.LittleEndian.Uint64(payload[116:])|binary.LittleEndian.Uint64(payload[124:]) != 0
	case QUIC:
		return quicBegins(payload)
	}
	return true
}

// wireguardKind is the kind of a message, 0 for a datagram that is none.
func wireguardKind(payload []byte) uint32 {
	if len(payload) < leastWireGuard {
		return 0
	}
	return binary.LittleEndian.Uint32(payload)
}

// Versions of QUIC: the number, and the type of an Initial packet. That of 0-RTT is the next.
var quicVersions = map[uint32]byte{1: 0, quicV2: 1}

const quicV2 = 0x6b3343cf

// quicBegins reports whether a datagram begins with an Initial packet, or one of 0-RTT, or is a short one, with which a client goes on from
// another address. The bit 0x40 is 1 in all that come before a server says that it need not be (RFC 9287).
func quicBegins(payload []byte) bool {
	if len(payload) < leastQUIC || payload[0]&0x40 == 0 {
		return false
	}
	if payload[0]&0x80 == 0 {
		return true
	}
	initial, ok := quicVersions[binary.BigEndian.Uint32(payload[1:])]
	theirs, kind := int(payload[5]), payload[0]>>4&3
	if !ok || theirs < 8 || theirs > MostID || len(payload) < 7+theirs { // RFC 9000, 7.2: the client draws 8 bytes or more
		return false
	}
	own := int(payload[6+theirs])
	return own <= MostID && (kind == initial && len(payload) >= 1200 || kind == initial+1)
}
