// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gameServer answers clients of a game server: queries by A2S (https://developer.valvesoftware.com/wiki/Server_queries), and requests to join a
// server of RakNet (https://wiki.vg/Raknet_Protocol). A message with the right challenge or cookie is served. To any other message it sends a
// challenge or cookie.
type gameServer struct{ seed maphash.Seed }

func newGameServer() gameServer { return gameServer{maphash.MakeSeed()} }

// Types of messages, and offsets of their fields.
const (
	mostGameMessage = 128 // bytes of a message of the server

	a2sChallenge  = 'A'
	a2sInfo       = 'T'
	a2sRules      = 'V' // the last type of query
	a2sInfoAnswer = 'I'
	a2sInfoSize   = 25 // bytes of a query without a challenge

	rakNetRequest1 = 5
	rakNetReply1   = 6
	rakNetRequest2 = 7
	rakNetReply2   = 8
	rakNetCookie   = 1 + 16 // in request 2, after the magic; in reply 1, there are a GUID and a byte more before it
)

var (
	a2sMark     = []byte{0xff, 0xff, 0xff, 0xff}
	rakNetMagic = []byte{0, 0xff, 0xff, 0, 0xfe, 0xfe, 0xfe, 0xfe, 0xfd, 0xfd, 0xfd, 0xfd, 0x12, 0x34, 0x56, 0x78}
)

// kindOf returns the type of a message; 0 if the datagram is no message.
func kindOf(message []byte) byte {
	switch {
	case len(message) > len(a2sMark) && bytes.HasPrefix(message, a2sMark):
		return message[len(a2sMark)]
	case len(message) > len(rakNetMagic) && bytes.HasPrefix(message[1:], rakNetMagic):
		return message[0]
	}
	return 0
}

// answer overwrites a datagram of n bytes with its answer, and returns its length. If the datagram is no message, it is its own answer.
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
		return 0 // an empty datagram: the sender of a forged packet gets nothing useful
	default:
		return n
	}
	return copy(buffer, to)
}

// join sends the first message of a client that is not served yet.
func (t *talker) join(i int, due time.Duration) {
	c := &t.clients[i]
	if t.started++; c.answered {
		return
	}
	if !c.waits {
		c.waits, c.since = true, due
	}
	_, _ = unix.Write(c.fd, t.Join)
	t.last = time.Since(t.start)
}

// joined handles a server's message to a client: it sends the requested message, or counts a served client as answered.
func (t *talker) joined(c *talking, message []byte) {
	var reply []byte
	switch kind := kindOf(message); {
	case c.answered:
		return
	case kind == a2sChallenge && len(message) == 9:
		reply = append(append(reply, t.Join[:min(a2sInfoSize, len(t.Join))]...), message[5:]...)
	case kind == rakNetReply1 && len(message) >= rakNetCookie+15:
		reply = append(append(reply, rakNetRequest2), rakNetMagic...)
		reply = append(append(reply, message[rakNetCookie+9:rakNetCookie+13]...), 0) // the cookie, and the flag that it is not signed
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

// echoName is the name under which this program runs as a process of a UDP server.
const echoName = "floodwall-echo"

// echoMain sends each datagram back until the process is killed. It answers the messages of clients of a game server.
func echoMain() error {
	var (
		buffer [2048]byte
		from   unix.RawSockaddrInet4
		game   = newGameServer()
	)
	for {
		size := uint32(unsafe.Sizeof(from))
		// x/sys allocates an address for each datagram, which the garbage collector would have to free.
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, serverFile, uintptr(unsafe.Pointer(&buffer)), uintptr(len(buffer)), 0,
			uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)))
		switch errno {
		case 0:
			n = uintptr(game.answer(buffer[:], int(n), &from))
			_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, serverFile, uintptr(unsafe.Pointer(&buffer)), n, 0, uintptr(unsafe.Pointer(&from)), uintptr(size))
		case unix.EINTR, unix.ECONNREFUSED:
		default:
			return fmt.Errorf("recvfrom: %w", errno)
		}
	}
}

// NewEchoProcess starts a UDP server in a separate process, on one CPU with one of the priorities. The server sends back each datagram that is no
// message of gameServer. It ends with the lab, or when stop is called. stop returns the server's error.
func (l *Lab) NewEchoProcess(h *Host, addr netip.AddrPort, cpu, priority int) (stop func() error, err error) {
	socket, err := h.datagramFile(addr)
	if err != nil {
		return nil, fmt.Errorf("udp server: %w", err)
	}
	return l.serve(h, "udp server", socket, role{name: echoName, cpu: cpu, priority: priority}), nil
}

// datagramFile opens a UDP socket in the host, as a blocking file to pass to a process.
func (h *Host) datagramFile(addr netip.AddrPort) (file *os.File, err error) {
	err = h.Do(func() error {
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			return err
		}
		defer c.Close()
		if file, err = c.File(); err == nil {
			err = unix.SetNonblock(int(file.Fd()), false)
		}
		return err
	})
	return file, err
}
