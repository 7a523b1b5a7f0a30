package lab

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"time"

	"golang.org/x/sys/unix"
)

// gameServer answers those who ask a game server by A2S (https://developer.valvesoftware.com/wiki/Server_queries), or join one of RakNet
// (https://wiki.vg/Raknet_Protocol): a message without the right challenge or cookie is answered with one, and a message with it is served.
type gameServer struct{ seed maphash.Seed }

func newGameServer() gameServer { return gameServer{maphash.MakeSeed()} }

// Kinds of messages, and where they have what.
const (
	mostGameMessage = 128 // bytes, that a server sends

	a2sChallenge  = 'A'
	a2sInfo       = 'T'
	a2sRules      = 'V' // the last kind of query
	a2sInfoAnswer = 'I'
	a2sInfoSize   = 25 // of a query without a challenge

	rakNetRequest1 = 5
	rakNetReply1   = 6
	rakNetRequest2 = 7
	rakNetReply2   = 8
	rakNetCookie   = 1 + 16 // behind the magic of request 2; of reply 1, behind a GUID and a byte besides
)

var (
	a2sMark     = []byte{0xff, 0xff, 0xff, 0xff}
	rakNetMagic = []byte{0, 0xff, 0xff, 0, 0xfe, 0xfe, 0xfe, 0xfe, 0xfd, 0xfd, 0xfd, 0xfd, 0x12, 0x34, 0x56, 0x78}
)

// kindOf is the kind of a message, 0 for a datagram that is none.
func kindOf(message []byte) byte {
	switch {
	case len(message) > len(a2sMark) && bytes.HasPrefix(message, a2sMark):
		return message[len(a2sMark)]
	case len(message) > len(rakNetMagic) && bytes.HasPrefix(message[1:], rakNetMagic):
		return message[0]
	}
	return 0
}

// answer overwrites a datagram of n bytes with its answer, and returns how long that is. A datagram that is no message is its own answer.
func (g gameServer) answer(buffer []byte, n int, from *unix.RawSockaddrInet4) int {
	message, secret := buffer[:n], binary.LittleEndian.AppendUint32(nil, uint32(maphash.Comparable(g.seed, [2]uint32{binary.BigEndian.Uint32(from.Addr[:]), uint32(from.Port)})))
	var to []byte
	switch kind := kindOf(message); {
	case kind >= a2sInfo && kind <= a2sRules:
		to = append(append(to, a2sMark...), a2sChallenge)
		if bytes.HasSuffix(message, secret) {
			to[len(to)-1] = a2sInfoAnswer
		} else {
			to = append(to, secret...)
		}
	case kind == rakNetRequest1:
		to = append(append(to, rakNetReply1), rakNetMagic...)
		to = append(append(append(to, "some GUID"[:8]...), 1), secret...)
		to = append(to, 5, 0xd4)
	case kind == rakNetRequest2 && bytes.HasPrefix(message[rakNetCookie:], secret):
		to = append(append(to, rakNetReply2), rakNetMagic...)
	case kind == rakNetRequest2:
		return 0 // a forger gets nothing that he could use: an empty datagram
	default:
		return n
	}
	return copy(buffer, to)
}

// join has a client that is not served yet send its first message.
func (t *talker) join(i int, due time.Duration) {
	c := &t.clients[i]
	if t.sent++; c.answered {
		return
	}
	if !c.waits {
		c.waits, c.since = true, due
	}
	_, _ = unix.Write(c.fd, t.Join)
	t.last = time.Since(t.start)
}

// joined takes what a server says to a client: what it asks for is sent, and the client that is served is answered.
func (t *talker) joined(c *talking, message []byte) {
	var reply []byte
	switch kind := kindOf(message); {
	case c.answered:
		return
	case kind == a2sChallenge && len(message) == 9:
		reply = append(append(reply, t.Join[:min(a2sInfoSize, len(t.Join))]...), message[5:]...)
	case kind == rakNetReply1 && len(message) >= rakNetCookie+15:
		reply = append(append(reply, rakNetRequest2), rakNetMagic...)
		reply = append(append(reply, message[rakNetCookie+9:rakNetCookie+13]...), 0) // the cookie, and that it is not signed
		reply = append(reply, 4, 0x80, 0xff, 0xff, 0xfd, 0x1b, 0x58, 5, 0xd4)        // the server's address, and the MTU
		reply = append(reply, 1, 2, 3, 4, 5, 6, 7, 8)                                // the client's GUID
	case kind == a2sInfoAnswer, kind == rakNetReply2:
		c.answered = true
		t.answers.add(time.Since(t.start) - c.since)
		return
	default:
		return
	}
	_, _ = unix.Write(c.fd, reply)
}
