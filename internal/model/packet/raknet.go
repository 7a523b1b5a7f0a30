package packet

import "bytes"

// Messages with which RakNet opens a connection: RakPeer.cpp of https://github.com/facebookarchive/RakNet, and
// https://github.com/vp817/RakNetProtocolDoc. The first two are the client's; the third has what the server's reply to the first said. Each begins with
// its kind and rakNetMagic. Numbers are big endian.
const (
	rakNetRequest1 = 0x05 // the magic, the version, and zeros up to the length that the client takes for the largest
	rakNetReply1   = 0x06 // the magic, the server's GUID, whether there is a cookie, the cookie, the largest packet
	rakNetRequest2 = 0x07 // the magic, the cookie and one byte if there was one, the server's address, the largest packet, the client's number

	rakNetMagic = "\x00\xff\xff\x00\xfe\xfe\xfe\xfe\xfd\xfd\xfd\xfd\x12\x34\x56\x78"

	cookieAt  = 1 + len(rakNetMagic) // of a second request
	addressAt = cookieAt + 5
	afterIt   = 2 + 8 // bytes, behind the address

	rakNetLong = 1 + len(rakNetMagic) + 8 + 1 + 4 + 2 // bytes, of a reply with a cookie: a request that is answered with one has as many
)

// RakNetVersions is how many versions of RakNet a cookie can have, from 0 on. Minecraft has 11, the last version of RakNet itself 6.
const RakNetVersions = 16

// rakNetAddresses are the lengths of addresses in messages, in bytes, by the first byte.
var rakNetAddresses = map[byte]int{4: 7, 6: 29}

// isRakNet reports whether a message has a kind.
func isRakNet(payload []byte, kind byte) bool {
	return len(payload) >= rakNetLong && payload[0] == kind && bytes.Equal(payload[1:cookieAt], []byte(rakNetMagic))
}

// rakNetCookie returns the cookie that a second request has, and whether it is one with a cookie: the length tells.
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
