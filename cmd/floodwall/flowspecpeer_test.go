// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// hostileUpdate is an update that a hostile router sends in a session.
type hostileUpdate struct {
	name     string
	messages [][]byte
	obeyed   string // the reason of the rule that this update causes; "" if none
	alone    bool   // sent alone, not together with other updates, because it causes rules
}

// The types of BGP messages (RFC 4271, 4.1).
const (
	bgpOpen      = 1
	bgpUpdate    = 2
	bgpKeepalive = 4
)

func bgpMessage(kind byte, body []byte) []byte {
	m := make([]byte, 16, 19+len(body))
	for i := range m {
		m[i] = 0xff
	}
	return append(append(binary.BigEndian.AppendUint16(m, uint16(19+len(body))), kind), body...)
}

// attribute returns a path attribute with the extended length of two bytes.
func attribute(flags, kind byte, value []byte) []byte {
	return append([]byte{flags | 0x10, kind, byte(len(value) >> 8), byte(len(value))}, value...)
}

// flowUpdate returns an update that announces IPv4 flow specifications. The parameter more has attributes after the required ones.
func flowUpdate(nlri []byte, path uint16, communities, more []byte) []byte {
	attrs := attribute(0x40, 1, []byte{0})
	attrs = append(attrs, attribute(0x40, 2, []byte{2, 1, byte(path >> 8), byte(path)})...)
	attrs = append(attrs, attribute(0x80, 14, append([]byte{0, 1, 133, 0, 0}, nlri...))...)
	attrs = append(attrs, attribute(0xc0, 16, communities)...)
	attrs = append(attrs, more...)
	return bgpMessage(bgpUpdate, append([]byte{0, 0, byte(len(attrs) >> 8), byte(len(attrs))}, attrs...))
}

var dropAll = []byte{0x80, 6, 0, 0, 0, 0, 0, 0}

// flowTo returns a flow specification for all packets to 192.0.2.N.
func flowTo(n byte) []byte { return []byte{6, 1, 32, 192, 0, 2, n} }

// hostileUpdates returns three kinds of updates: malformed ones, ones that request actions that this host must not take, and too many at a time.
func hostileUpdates() []hostileUpdate {
	const as = 64501
	deep := []byte{0xf1, 0x40, 1, 32, 192, 0, 2, 1, 5} // 320 bytes of comparisons of ports
	for range 104 {
		deep = append(deep, 0x11, 0, 7)
	}
	deep = append(deep[:len(deep)-3], 0x91, 0, 7)
	var flood [][]byte
	for i := range 1000 {
		flood = append(flood, flowUpdate([]byte{10, 1, 32, 192, 0, 2, byte(i), 5, 0x91, byte(i >> 8), byte(i)}, as, dropAll, nil))
	}
	var flaps [][]byte
	for i := range 300 {
		flaps = append(flaps, flowUpdate(flowTo(byte(200+i%8)), as, dropAll, nil), bgpMessage(bgpUpdate, withdrawal(flowTo(byte(200+i%8)))))
	}
	return []hostileUpdate{
		{"an NLRI that is cut off", [][]byte{flowUpdate([]byte{20, 1, 32, 192, 0, 2, 1}, as, dropAll, nil)}, "", false},
		{"an NLRI of no type", [][]byte{flowUpdate([]byte{3, 99, 1, 1}, as, dropAll, nil)}, "", false},
		{"a prefix of 255 bits", [][]byte{flowUpdate([]byte{6, 1, 255, 192, 0, 2, 1}, as, dropAll, nil)}, "", false},
		{"an NLRI above 240 bytes", [][]byte{flowUpdate(deep, as, dropAll, nil)}, "", false},
		{"communities that are cut off", [][]byte{flowUpdate(flowTo(60), as, dropAll[:5], nil)}, "", false},
		{"an attribute that is too long", [][]byte{flowUpdate(flowTo(61), as, dropAll, []byte{0xd0, 99, 0xff, 0xff, 1})}, "", false},
		{"drops for all destinations, for other networks, and for none", [][]byte{
			flowUpdate([]byte{2, 1, 0}, as, dropAll, nil), flowUpdate([]byte{5, 1, 24, 198, 51, 100}, as, dropAll, nil), flowUpdate([]byte{3, 3, 0x81, 6}, as, dropAll, nil),
		}, "", false},
		{"a path of another network", [][]byte{flowUpdate(flowTo(62), 64999, dropAll, nil)}, "", false},
		{"a drop of the session", [][]byte{flowUpdate([]byte{9, 1, 32, 192, 0, 2, 1, 4, 0x81, 179}, as, dropAll, nil)}, "destination 192.0.2.1/32, port =179", true},
		{"1,000 routes", flood, "", true},
		{"300 announcements and withdrawals", flaps, "", true},
	}
}

func withdrawal(nlri []byte) []byte {
	attrs := attribute(0x80, 15, append([]byte{0, 1, 133}, nlri...))
	return append([]byte{0, 0, byte(len(attrs) >> 8), byte(len(attrs))}, attrs...)
}

// listen makes a router listen for the BGP session of this host.
func (u *upstreams) listen(address string) (l *net.TCPListener) {
	u.Helper()
	var err error
	u.ns.Do(func() { l, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(address), Port: 179}) })
	if err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() { l.Close() })
	return l
}

// speak makes a router accept the session of this host and send messages. If this host must obey one, the router waits until the rule is in force.
// Otherwise it ends after a while, or when the session ends.
func (u *upstreams) speak(l *net.TCPListener, h hostileUpdate) {
	u.Helper()
	c, err := established(l)
	if err != nil {
		u.Errorf("%s: %v\n%s", h.name, err, u.host.log())
		return
	}
	defer c.Close()
	for _, m := range h.messages {
		if _, err := c.Write(m); err != nil {
			break // this host ended the session
		}
	}
	if h.obeyed != "" {
		u.until(h.obeyed, func() bool { return u.obeys(h.obeyed) })
		return
	}
	c.SetReadDeadline(time.Now().Add(3 * time.Second))
	io.Copy(io.Discard, c)
}

// established waits for this host to connect, and returns the established session. If no session is established within a minute, it closes the
// connection and waits for the next one. It accepts no further connection afterwards.
func established(l *net.TCPListener) (net.Conn, error) {
	defer l.Close()
	l.SetDeadline(time.Now().Add(time.Minute))
	for {
		c, err := l.Accept()
		if err != nil {
			return nil, fmt.Errorf("this host does not connect: %w", err)
		}
		if err = openSession(c, l.Addr().(*net.TCPAddr).IP.To4()); err == nil {
			return c, nil
		}
		c.Close()
	}
}

// openSession exchanges the messages that establish a BGP session.
func openSession(c net.Conn, id net.IP) error {
	c.SetDeadline(time.Now().Add(time.Minute))
	capabilities := []byte{2, 6, 1, 4, 0, 1, 0, 133, 2, 6, 1, 4, 0, 2, 0, 133}
	open := append([]byte{4, 64501 >> 8, 64501 & 0xff, 0, 90, id[0], id[1], id[2], id[3], byte(len(capabilities))}, capabilities...)
	if _, err := c.Write(append(bgpMessage(bgpOpen, open), bgpMessage(bgpKeepalive, nil)...)); err != nil {
		return err
	}
	for seen := byte(0); seen != bgpKeepalive; { // the session is established on its first one
		header := make([]byte, 19)
		if _, err := io.ReadFull(c, header); err != nil {
			return err
		}
		seen = header[18]
		io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(header[16:]))-19)
	}
	return nil
}
