// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connection is a connection between an application and the adversary. It was open before the policy. Each connection has a source address of its
// own.
type connection struct {
	src, dst     netip.Addr
	sport, dport uint16
	seq, ack     uint32 // numbers of the adversary's next segment
	fd           int    // the application's socket
	used         bool   // an attempt of this round uses the connection
}

// Connections have the numbers from firstConnection on. These numbers are part of their source addresses. No other attempt has these numbers.
const (
	numConnections  = 128
	firstConnection = 1<<16 - numConnections
)

const flagACK, flagPSH = 0x10, 0x08

// connect opens the connections while no policy is in force. In each round it sends those segments again that a full queue may have dropped.
func (s *scene) connect(t *testing.T, g *generator) {
	t.Helper()
	open := map[netip.Addr]*connection{}
	for i := range uint32(numConnections) {
		v6 := i%2 == 1
		c := &connection{src: g.source(v6, firstConnection+i), dst: targets[0][0], sport: 40000, dport: ports[i/2%uint32(len(ports))], seq: 1000}
		if v6 {
			c.dst = targets[1][0]
		}
		open[c.src] = c
		s.connections = append(s.connections, c)
	}
	for end := time.Now().Add(time.Minute); len(open) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d connections are not open", len(open), numConnections)
		}
		for _, c := range open {
			s.begin(t, c)
		}
		s.settle(t)
		s.hearAnswers(open)
		s.settle(t)
		s.accept(t, open)
	}
}

// begin sends the next segment of a connection's handshake.
func (s *scene) begin(t *testing.T, c *connection) {
	t.Helper()
	flags := uint8(flagSYN)
	if c.ack != 0 {
		flags = flagACK
	}
	s.sendSegment(t, c, flags)
}

// hearAnswers reads SYN-ACKs, and records their numbers in the connections in open.
func (s *scene) hearAnswers(open map[netip.Addr]*connection) {
	for {
		n, _, err := unix.Recvfrom(s.answers, s.buffer, unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		e, ok := answered(s.buffer[:n])
		if c := open[e.src]; ok && c != nil && c.ack == 0 {
			c.ack = binary.BigEndian.Uint32(tcpOf(s.buffer[:n])[4:]) + 1
			c.seq++
		}
	}
}

// accept accepts connections at the server's sockets, and removes them from open.
func (s *scene) accept(t *testing.T, open map[netip.Addr]*connection) {
	t.Helper()
	for _, k := range s.sockets {
		for k.proto == protoTCP {
			fd, from, err := unix.Accept4(k.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			if c := open[addressOf(from)]; c != nil {
				c.fd = fd
				delete(open, c.src)
			}
			t.Cleanup(func() { unix.Close(fd) })
		}
	}
}

func addressOf(a unix.Sockaddr) netip.Addr {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr)
	}
	return netip.Addr{}
}

// sendSegment sends a segment of a connection. The segment has no data, and its frame has no variations.
func (s *scene) sendSegment(t *testing.T, c *connection, flags uint8) {
	t.Helper()
	a := &attempt{proto: protoTCP, src: c.src, dst: c.dst, sport: c.sport, dport: c.dport, flags: flags, of: c}
	ether, ip := uint16(etherIPv4), []byte(nil)
	if c.src.Is4() {
		ip = a.ipv4(header{ttl: 64}, a.segment(nil), 0, false)
	} else {
		ether, ip = etherIPv6, a.ipv6(header{ttl: 64}, protoTCP, a.segment(nil))
	}
	a.frames = []frame{{bytes: ethernet(ether, ip)}}
	s.send(t, a)
}

// tcpOf returns the TCP header of a frame that answered() has read.
func tcpOf(b []byte) []byte {
	if b[12] == 0x08 {
		return b[14+int(b[14]&15)*4:]
	}
	return b[54:]
}

// spoken reads the data that applications have received on their connections. It returns an event for each.
func (s *scene) spoken(t *testing.T) (list []event) {
	t.Helper()
	for _, c := range s.connections {
		n, _, err := unix.Recvfrom(c.fd, s.buffer, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil || n == 0 {
			t.Fatalf("connection from %s: %d bytes, %v", c.src, n, err)
		}
		c.seq += uint32(n)
		list = append(list, event{proto: protoTCP, src: c.src, dst: c.dst, sport: c.sport, dport: c.dport})
	}
	return list
}

// onConnection makes an attempt carry data for a connection that this round has not used. The connection has the attempt's address family.
// onConnection reports whether it has found a connection.
func (g *generator) onConnection(a *attempt, v6 bool) bool {
	for range 8 {
		if len(g.connections) == 0 {
			return false
		}
		c := pick(g, g.connections...)
		if c.used || c.src.Is6() != v6 {
			continue
		}
		c.used = true
		a.of, a.src, a.dst, a.sport, a.dport, a.flags = c, c.src, c.dst, c.sport, c.dport, flagACK|flagPSH
		return true
	}
	return false
}
