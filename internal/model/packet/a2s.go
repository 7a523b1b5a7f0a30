package packet

import (
	"bytes"
	"encoding/binary"
)

// Messages of game servers, A2S: https://developer.valvesoftware.com/wiki/Server_queries. Each begins with four bytes of 0xff, if it is whole, and
// its kind.
const (
	a2sMark      = 0xffffffff
	a2sChallenge = 'A'
	a2sInfo      = 'T' // queries
	a2sPlayer    = 'U'
	a2sRules     = 'V'
	leastA2S     = 9 // bytes of the shortest query
	infoText     = "Source Engine Query\x00"
	infoShort    = 5 + len(infoText) // bytes of a query for INFO without a challenge
	infoLong     = infoShort + 4     // and with it
)

// GameAnswer is the longest answer that is kept, in bytes.
const GameAnswer = 1400

// a2sKind is the kind of a message, 0 for a datagram that is none.
func a2sKind(payload []byte) byte {
	if len(payload) < 5 || binary.BigEndian.Uint32(payload) != a2sMark {
		return 0
	}
	return payload[4]
}

// query reads a query for INFO, PLAYER or RULES, and the challenge that it has, if any.
func query(payload []byte) (challenge []byte, ok bool) {
	switch kind := a2sKind(payload); {
	case kind == a2sInfo && (len(payload) == infoShort || len(payload) == infoLong):
		return payload[infoShort:], bytes.Equal(payload[5:infoShort], []byte(infoText))
	case (kind == a2sPlayer || kind == a2sRules) && len(payload) == leastA2S:
		return payload[5:], true
	}
	return nil, false
}

// Asks reports whether a datagram is a query or a request: of those that are answered with a challenge, or that have one.
func (d Datagrams) Asks(payload []byte) bool {
	if d == RakNet {
		_, ok := rakNetCookie(payload)
		return ok || d.Opens(payload)
	}
	return d.Opens(payload)
}

// Opens reports whether a datagram is answered with a challenge, if it has not a right one.
func (d Datagrams) Opens(payload []byte) bool {
	switch d {
	case A2S:
		_, ok := query(payload)
		return ok
	case RakNet:
		return isRakNet(payload, rakNetRequest1) && payload[cookieAt] < RakNetVersions
	}
	return false
}
