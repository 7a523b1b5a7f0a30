// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

const (
	patience = 30 * time.Second // the longest time that an answer takes on a busy machine
	bulk     = 4 << 20          // the number of bytes that are sent each way
)

// ask is a question to a service, which a row of the table has as a line of asks.
type ask struct {
	who   string // the place that sends the question; @ and its source address may follow
	proto string // tcp, udp, raw/NUMBER, or query (an IGMP query for the members of a group)
	to    string
	want  string
}

func (a ask) String() string { return strings.Join([]string{a.who, a.proto, a.to}, " ") }

func (s *scene) parse(lines string) (list []ask) {
	for line := range strings.Lines(s.moved(lines)) {
		if w := strings.Fields(line); len(w) == 4 {
			list = append(list, ask{w[0], w[1], w[2], w[3]})
		}
	}
	return list
}

// asks returns all questions of the host. On the targets nftables and iptables, the kernel answers SYNs, and not to a port where nobody listens.
func (s *scene) asks() []ask {
	return slices.DeleteFunc(s.parse(baseAsks+s.host.asks), func(a ask) bool {
		return a.want == "cookie" && (s.on == "nftables" || s.on == "iptables")
	})
}

// without returns the result that a question has without Floodwall.
func (a ask) without() string {
	switch {
	case a.want == "closed" && strings.HasPrefix(a.proto, "raw/"):
		return "heard"
	case a.want == "closed" || a.want == "refused":
		return "served"
	case a.want == "cookie":
		return "refused"
	}
	return a.want
}

// answers sends all questions. It ends the test if a question does not have the expected result. It first sends the questions that must get no
// answer. When all others have been answered, the first ones have had enough time.
func (s *scene) answers(when string, list []ask) {
	s.Helper()
	began := time.Now()
	var closed []*pending
	for _, a := range list {
		if a.want == "closed" || a.want == "shut" {
			closed = append(closed, s.try(a, fmt.Sprint(s.Name(), " ", when, " ", a)))
		}
	}
	s.each(list, func(a ask) bool { return slices.Contains([]string{"served", "heard", "refused", "cookie"}, a.want) }, when)
	s.each(list, func(a ask) bool { return a.want == "bulk" }, when) // last, since much data may fill queues, where datagrams of other questions would be lost
	for _, p := range closed {
		if p.came() {
			s.Errorf("%s: %s: OPEN, it must be closed", when, p.ask)
		}
		p.stop()
	}
	s.Logf("%s: %d questions in %.1f s", when, len(list), time.Since(began).Seconds())
	if s.Failed() {
		s.FailNow()
	}
}

// each sends the questions for which wanted returns true, all at the same time. All of them must be answered.
func (s *scene) each(list []ask, wanted func(ask) bool, when string) {
	var all sync.WaitGroup
	for i, a := range list {
		if !wanted(a) {
			continue
		}
		all.Go(func() {
			p := s.try(a, fmt.Sprint(s.Name(), " ", when, " ", i, " ", a))
			defer p.stop()
			if err := p.wait(); err != nil {
				s.Errorf("%s: %s: %v", when, a, err)
			}
		})
	}
	all.Wait()
}

// open checks that the scene can show a difference. Without Floodwall, the ports that Floodwall must close must be open.
func (s *scene) open() {
	s.Helper()
	list := s.asks()
	for i, a := range list {
		list[i].want = a.without()
	}
	s.answers("without Floodwall", list)
}

// pending is a question that has been sent.
type pending struct {
	ask
	s    *scene
	text string
	done chan error // receives nil for an answer, or the reason why there is none
	stop context.CancelFunc
}

// try sends a question from its place. It waits until a datagram has been sent, but it does not wait for a connection.
func (s *scene) try(a ask, text string) *pending {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &pending{ask: a, s: s, text: text, done: make(chan error, 1), stop: cancel}
	sent := make(chan bool)
	place, _, _ := strings.Cut(a.who, "@")
	s.places[place].Begin(func() {
		if ask, ok := map[string]func(context.Context) error{"tcp": p.connect, "query": p.query}[a.proto]; ok {
			close(sent)
			p.done <- ask(ctx)
			return
		}
		c, err := p.send(ctx)
		close(sent)
		if err == nil {
			defer c.Close()
			err = p.answered(ctx, c)
		}
		p.done <- err
	})
	<-sent
	return p
}

// wait waits for the answer. If there is no answer, it returns the reason.
func (p *pending) wait() error { return <-p.done }

// came reports whether a question that must not arrive has been answered or received.
func (p *pending) came() bool {
	select {
	case err := <-p.done:
		if err == nil {
			return true
		}
	default:
	}
	return p.s.hasHeard(p.text)
}

// connect opens a connection, sends data, and checks that the server returns the same data. Behind a cookie there is no server.
func (p *pending) connect(ctx context.Context) error {
	c, err := p.dialer("tcp").DialContext(ctx, "tcp", p.to)
	if p.want == "refused" {
		return refused(err)
	}
	if p.want == "cookie" && errors.Is(err, unix.ECONNRESET) { // the answer was taken, and only what followed it was not
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if p.want == "cookie" {
		return nil
	}
	end, _ := ctx.Deadline()
	c.SetDeadline(end)
	data := []byte(p.text)
	if p.want == "bulk" {
		data = bytes.Repeat([]byte("0123456789abcdef"), bulk/16)
		c.SetDeadline(time.Now().Add(2 * time.Minute)) // long enough for a slow machine
	}
	go c.Write(data)
	got := make([]byte, len(data))
	if n, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("connected, and %d of %d bytes came back: %w", n, len(data), err)
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("the bytes that came back are others")
	}
	return nil
}

// refused returns nil if a question was refused.
func refused(err error) error {
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	return fmt.Errorf("it was not refused: %w", cmp.Or(err, errors.New("it was answered")))
}

// dialer returns a dialer with the source address of a question. The address follows the @, as in "out@198.51.100.77".
func (p *pending) dialer(network string) *net.Dialer {
	d := new(net.Dialer)
	d.SetMultipathTCP(false) // few clients ask for it
	_, from, ok := strings.Cut(p.who, "@")
	switch ip := net.ParseIP(from); {
	case ok && network == "udp":
		d.LocalAddr = &net.UDPAddr{IP: ip}
	case ok:
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	return d
}

// send sends a datagram. It sends it only once, because only a firewall can lose it on this path.
func (p *pending) send(ctx context.Context) (net.Conn, error) {
	network := p.proto
	if number, raw := strings.CutPrefix(p.proto, "raw/"); raw {
		network = "ip4:" + number
	}
	c, err := p.dialer(network).DialContext(ctx, network, p.to)
	if err == nil {
		// The namespace that sends may also be a member of the group.
		err = option(c, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0)
	}
	if err == nil {
		_, err = c.Write([]byte(p.text))
	}
	return c, err
}

// answered waits until the server returns the same text. For "heard", it waits until a listener has received the text.
func (p *pending) answered(ctx context.Context, c net.Conn) error {
	if p.want == "heard" {
		if !testutil.Eventually(patience, func() bool { return p.s.hasHeard(p.text) }) {
			return fmt.Errorf("it was not received")
		}
		return nil
	}
	end, _ := ctx.Deadline()
	c.SetReadDeadline(end)
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now()) })
	defer stop()
	data := make([]byte, 2000)
	n, err := c.Read(data)
	switch {
	case p.want == "refused":
		return refused(err)
	case err != nil && p.s.hasHeard(p.text):
		return fmt.Errorf("it was received, and the answer was not: %w", err)
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case string(data[:n]) != p.text:
		return fmt.Errorf("the answer is %q", data[:n])
	}
	return nil
}

// Types of IGMP, version 2 (RFC 2236).
const (
	membershipQuery  = 0x11
	membershipReport = 0x16
)

// query sends an IGMP query to all hosts of the link, as the querier of a switch does. It waits for a membership report for the group.
func (p *pending) query(ctx context.Context) error {
	opened, err := net.ListenPacket("ip4:2", "0.0.0.0")
	if err != nil {
		return err
	}
	defer opened.Close()
	c := opened.(*net.IPConn)
	if err := join(c, p.to); err != nil {
		return err
	}
	// The namespace that sends the query is also a member of the group. It must not answer its own query.
	if err := option(c, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0); err != nil {
		return err
	}
	const soon = 1 // tenths of a second
	data := []byte{membershipQuery, soon, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(data[2:], ^uint16(membershipQuery<<8|soon))
	if _, err := c.WriteToIP(data, &net.IPAddr{IP: net.IPv4(224, 0, 0, 1)}); err != nil {
		return err
	}
	end, _ := ctx.Deadline()
	c.SetReadDeadline(end)
	for data := make([]byte, 2000); ; {
		n, _, err := c.ReadFromIP(data)
		if err != nil {
			return fmt.Errorf("no report: %w", err)
		}
		if n >= 8 && data[0] == membershipReport && net.IP(data[4:8]).Equal(net.ParseIP(p.to)) {
			return nil
		}
	}
}
