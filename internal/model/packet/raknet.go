// SPDX-License-Identifier: Apache-2.0

package packet

import "bytes"

// Messages with which RakNet opens a connection: RakPeer.cpp of https://github.com/facebookarchive/RakNet, and
// https://github.com/vp817/RakNetProtocolDoc. The client sends the two requests. The second request repeats data of the server's reply to the first.
// Each message begins with its kind and rakNetMagic. Numbers are big endian.
const (
	rakNetRequest1 = 0x05 // the magic, the version, and zeros up to the length that the client assumes for the largest packet
	rakNetReply1   = 0x06 // the magic, the server's GUID, whether there is a cookie, the cookie, the largest packet
	rakNetRequest2 = 0x07 // the magic, the cookie and one byte (if the reply had a cookie), the server's address, the largest packet, the client's GUID

	rakNetMagic = "\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x12\x34\x56\x78"

	cookieAt  = 1 + len(rakNetMagic) // offset in a second request
	addressAt = cookieAt + 5
	afterIt   = 2 + 8 // bytes after the address

	rakNetLong = 1 + len(rakNetMagic) + 8 + 1 + 4 + 2 // bytes of a reply with a cookie; only a request of at least this length is answered with a cookie
)

// RakNetVersions is the number of RakNet versions, from 0 on, for which Floodwall uses cookies. Minecraft has version 11. The last version of RakNet
// itself is 6.
const RakNetVersions = 16

// rakNetAddresses maps the first byte of an address in a message to the length of the address in bytes.
var rakNetAddresses = map[byte]int{4: 7, 6: 29}

// isRakNet reports whether a datagram is a RakNet message of this kind.
func isRakNet(payload []byte, kind byte) bool {
	return len(payload) >= rakNetLong && payload[0] == kind && bytes.Equal(payload[1:cookieAt], []byte(rakNetMagic))
}

// rakNetCookie returns the cookie of a second request. ok is false if the datagram is not a second request with a cookie. Only the length of the
// request shows whether it has a cookie.
func rakNetCookie(payload []byte) (cookie []byte, ok bool) {
	if !isRakNet(payload, rakNetRequest2) {
		return nil, false
	}
	size := rakNetAddresses[payload[addressAt]]
	if size == 0 || len(payload) != addressAt+size+afterIt {
		return nil, false
	}
	return payload[cookieAt:][:4], true
}
