package traffic_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connection is one that an application has with an adversary since before any policy. Each has a source of its own.
type connection struct {
	src, dst     netip.Addr
	sport, dport uint16
	seq, ack     uint32 // of the adversary's next segment
	fd           int    // the application's
	used         bool   // in this round
}

// The numbers in the sources of connections, which no other attempt has.
const (
	numConnections  = 128
	firstConnection = 1<<16 - numConnections
)

const flagACK, flagPSH = 0x10, 0x08

// connect makes the connections, with no policy in force. Each round sends again what may have been lost in a full queue.
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

// begin sends what is next in the handshake of a connection.
func (s *scene) begin(t *testing.T, c *connection) {
	t.Helper()
	flags := uint8(flagSYN)
	if c.ack != 0 {
		flags = flagACK
	}
	s.sendSegment(t, c, flags)
}

// hearAnswers reads SYN-ACKs.
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

// accept takes connections, which are then no longer among those that are being opened.
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

// sendSegment sends a segment of a connection without data, in a plain frame.
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

// tcpOf is the TCP header of a frame that answered() has read.
func tcpOf(b []byte) []byte {
	if b[12] == 0x08 {
		return b[14+int(b[14]&15)*4:]
	}
	return b[54:]
}

// spoken reads what applications have got by their connections.
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

// onConnection has an attempt be data on a connection of its family that this round has not used. It reports whether there is one.
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
