package hosts

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/test/testutil"
)

const (
	patience = 15 * time.Second // what does not come within it, on a busy machine, does not come
	bulk     = 4 << 20          // bytes each way
)

// ask is a line of a row's asks.
type ask struct {
	who   string // a place, and an address of its own behind @
	proto string // tcp, udp, raw/NUMBER, or query: of IGMP, for the members of a group
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

// asks are all of the host.
func (s *scene) asks() []ask { return s.parse(baseAsks + s.host.asks) }

// answers asks everything, and compares. The test ends when an answer is another than it must be. What must not come is sent first: when all else has been answered, it has had its time.
func (s *scene) answers(when string, list []ask) {
	s.Helper()
	began := time.Now()
	var closed []*pending
	for _, a := range list {
		if a.want == "closed" || a.want == "shut" {
			closed = append(closed, s.try(a, fmt.Sprint(s.Name(), " ", when, " ", a)))
		}
	}
	s.each(list, func(a ask) bool { return a.want == "served" || a.want == "heard" }, when)
	s.each(list, func(a ask) bool { return a.want == "bulk" }, when) // it may fill queues, where a datagram of the others would be lost
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

// each asks at once those of the list that are wanted.
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

// open makes sure that the scene says something: without Floodwall what must be closed is open.
func (s *scene) open() {
	s.Helper()
	list := s.asks()
	for i, a := range list {
		if a.want == "closed" {
			list[i].want = "served"
			if strings.HasPrefix(a.proto, "raw/") {
				list[i].want = "heard"
			}
		}
	}
	s.answers("without Floodwall", list)
}

// pending is a question on its way.
type pending struct {
	ask
	s    *scene
	text string
	done chan error // the answer, or why there is none
	stop context.CancelFunc
}

// try sends a question from a namespace. It waits until a datagram has left, and not for a connection.
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

// wait returns why there is no answer, nil if there is one.
func (p *pending) wait() error { return <-p.done }

// came reports whether what must be closed was open.
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

// connect has a connection, and gets back what it sends.
func (p *pending) connect(ctx context.Context) error {
	c, err := p.dialer("tcp").DialContext(ctx, "tcp", p.to)
	if err != nil {
		return err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	c.SetDeadline(end)
	data := []byte(p.text)
	if p.want == "bulk" {
		data = bytes.Repeat([]byte("0123456789abcdef"), bulk/16)
		c.SetDeadline(time.Now().Add(2 * time.Minute)) // it ends, however slow the machine is
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

// dialer has the address that a question is to come from: "out@198.51.100.77".
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

// send sends a datagram once: none is lost on the way but by a firewall.
func (p *pending) send(ctx context.Context) (net.Conn, error) {
	network := p.proto
	if number, raw := strings.CutPrefix(p.proto, "raw/"); raw {
		network = "ip4:" + number
	}
	c, err := p.dialer(network).DialContext(ctx, network, p.to)
	if err == nil {
		// Where it is sent from there may be a member of the group, too.
		err = option(c, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0)
	}
	if err == nil {
		_, err = c.Write([]byte(p.text))
	}
	return c, err
}

// answered waits for the same text back, or until it has been heard.
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

// query asks all hosts of the link of which groups they are members, as the switch's querier does, and waits for a report of the group.
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
	// The namespace that asks is a member, too, and must not answer itself.
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
