// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/binary"
)

// Messages of A2S, the query protocol of game servers: https://developer.valvesoftware.com/wiki/Server_queries. A message that is not split begins
// with four bytes of 0xff, followed by its kind.
const (
	a2sMark      = 0xffffffff
	a2sChallenge = 'A'
	a2sInfo      = 'T' // kinds of queries
	a2sPlayer    = 'U'
	a2sRules     = 'V'
	leastA2S     = 9 // bytes of the shortest query
	infoText     = "Source Engine Query\x00"
	infoShort    = 5 + len(infoText) // bytes of a query for INFO without a challenge
	infoLong     = infoShort + 4     // the same with a challenge
)

// GameAnswer is the size in bytes of the longest answer that is stored.
const GameAnswer = 1400

// a2sKind returns the kind of a message, 0 for a datagram that is not an A2S message.
func a2sKind(payload []byte) byte {
	if len(payload) < 5 || binary.BigEndian.Uint32(payload) != a2sMark {
		return 0
	}
	return payload[4]
}

// query parses a query for INFO, PLAYER or RULES. It returns the challenge in the query, or no bytes if the query has none.
func query(payload []byte) (challenge []byte, ok bool) {
	switch kind := a2sKind(payload); {
	case kind == a2sInfo && (len(payload) == infoShort || len(payload) == infoLong):
		return payload[infoShort:], bytes.Equal(payload[5:infoShort], []byte(infoText))
	case (kind == a2sPlayer || kind == a2sRules) && len(payload) == leastA2S:
		return payload[5:], true
	}
	return nil, false
}

// Asks reports whether a datagram is a query or request of the challenge exchange: the server answers it with a challenge, or it contains a
// challenge.
func (d Datagrams) Asks(payload []byte) bool {
	if d == RakNet {
		_, ok := rakNetCookie(payload)
		return ok || d.Opens(payload)
	}
	return d.Opens(payload)
}

// Opens reports whether the server answers a datagram with a challenge unless the datagram contains a valid one.
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
