// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/traffic"
	"github.com/floodwall/floodwall/internal/lab"
)

// detectSite is a host with services and two links: one to honest clients, and one to an attacker. Each link has a queue of 256 places (kernel
// drivers/net/veth.c, VETH_RING_SIZE). With two links, packets that a queue loses, and packets that XDP drops, belong to only one of the two.
type detectSite struct {
	lab               *lab.Lab
	server            *lab.Host
	clients, attacker *lab.Device // of their hosts
	honest, attack    *lab.Device // of the server
	ends              []io.Closer

	*product                 // on the server
	tcp      *tcpTraffic     // of the clients
	classes  []traffic.Class // of honest packets that are counted
}

// The names of the server's devices.
const honestWire, attackWire = "clients", "attacker"

// newDetectSite builds a site in an empty lab. If alone is true, no other case runs on the machine, and the CPU that receives the attacker's packets
// is not the attacker's CPU. Otherwise the attacker and the receiver, which never sleep, may share a CPU.
func newDetectSite(l *lab.Lab, alone bool) (s *detectSite, err error) {
	s = &detectSite{lab: l}
	on := report.Choice(alone, lab.OnCPU(rig.ReceiverCPU), lab.AnyCPU)
	if s.server, err = l.Host("server"); err != nil {
		return nil, err
	}
	if s.clients, s.honest, err = s.connect(honestWire, "10.1.0.1/30", "10.1.0.2/30", lab.AnyCPU); err != nil {
		return nil, err
	}
	if s.attacker, s.attack, err = s.connect(attackWire, "10.2.0.1/30", "10.2.0.2/30", on); err != nil {
		return nil, err
	}
	if err := s.server.Own(traffic.HostNetwork); err != nil {
		return nil, err
	}
	for half, device := range map[string]*lab.Device{"0.0.0.0/1": s.honest, "128.0.0.0/1": s.attack} {
		if err := s.server.Route(netip.MustParsePrefix(half), device.Peer.Addrs[0].Addr(), device); err != nil {
			return nil, err
		}
	}
	for _, p := range []netip.Prefix{traffic.UsualClients, traffic.Others} {
		if err := s.clients.Host.Own(p); err != nil {
			return nil, err
		}
	}
	if err := s.clients.Host.Route(traffic.HostNetwork, s.honest.Addrs[0].Addr(), s.clients); err != nil {
		return nil, err
	}
	return s, s.serve()
}

// connect adds a link to the server. The kernel must accept packets from random sources although these have no route back. Sent packets wait in a
// queue.
func (s *detectSite) connect(name, other, own string, on lab.NAPI) (out, in *lab.Device, err error) {
	host, err := s.lab.Host(name)
	if err != nil {
		return nil, nil, err
	}
	out, in, err = s.lab.Connect(host, s.server, lab.LinkOptions{
		A: lab.EndOptions{Addrs: lab.ParseAddrs(other), Queue: true}, B: lab.EndOptions{Name: name, Addrs: lab.ParseAddrs(own), Queue: true, CPU: on},
	})
	if err != nil {
		return nil, nil, err
	}
	for _, device := range []string{"all", in.Name} {
		if err := s.server.Sysctl("ipv4/conf/"+device+"/rp_filter", "0"); err != nil {
			return nil, nil, err
		}
	}
	return out, in, nil
}

// answerable adds an XDP program to both peers. A veth without a program loses the packets that XDP sends back (veth_xdp_xmit() of the kernel's
// drivers/net/veth.c).
func (s *detectSite) answerable() error {
	_, err := s.lab.NewSink(s.clients, lab.PassAll)
	if err == nil {
		_, err = s.lab.NewSink(s.attacker, lab.DropAll)
	}
	return err
}

// closeServices ends the services.
func (s *detectSite) closeServices() error {
	var errs []error
	for _, e := range s.ends {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// serve starts the services.
func (s *detectSite) serve() error {
	for port, answer := range map[uint16]func([]byte, []byte) []byte{
		traffic.Game: echo(traffic.IsGame), traffic.Voice: echo(traffic.IsVoice), traffic.Small: echo(traffic.IsSmall), traffic.DNS: answerDNS,
	} {
		if err := s.serveUDP(port, answer); err != nil {
			return err
		}
	}
	for _, port := range []uint16{traffic.HTTP, traffic.HTTPS} {
		l, err := s.listen(port)
		if err != nil {
			return err
		}
		web := &http.Server{Handler: http.HandlerFunc(page)}
		s.ends = append(s.ends, web)
		go func() { _ = web.Serve(l) }() // returns when the listener is closed
	}
	l, err := s.listen(traffic.SSH)
	if err != nil {
		return err
	}
	s.ends = append(s.ends, l)
	go accept(l)
	return nil
}

// lineRate is the maximum rate of a connection, in bytes per second. It corresponds to 400 Mbit/s, which are some 34,000 packets per second.
const lineRate = 400e6 / 8

// paced limits a socket to lineRate. Accepted sockets inherit the limit from the listener.
func paced(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, lineRate)
	})
	return errors.Join(err, failed)
}

func (s *detectSite) listen(port uint16) (l net.Listener, err error) {
	err = s.server.Do(func() error {
		c := net.ListenConfig{Control: paced}
		l, err = c.Listen(context.Background(), "tcp", netip.AddrPortFrom(traffic.Host, port).String())
		return err
	})
	return l, err
}

// serveUDP answers datagrams.
func (s *detectSite) serveUDP(port uint16, answer func(to, query []byte) []byte) (err error) {
	var c *net.UDPConn
	err = s.server.Do(func() error {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(traffic.Host, port)))
		return err
	})
	if err != nil {
		return err
	}
	s.ends = append(s.ends, c)
	_ = c.SetReadBuffer(4 << 20) // if it fails, the default is enough for the clients
	go func() {
		query, to := make([]byte, 2048), make([]byte, 0, 2048)
		for {
			n, from, err := c.ReadFromUDPAddrPort(query)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				if b := answer(to[:0], query[:n]); len(b) > 0 {
					_, _ = c.WriteToUDPAddrPort(b, from) // a forged address may have no route
				}
			}
		}
	}()
	return nil
}

// echo returns a function that returns datagrams of the service's own protocol to their sender. Other datagrams get no answer, because a server would
// not understand them.
func echo(is func([]byte) bool) func(to, query []byte) []byte {
	return func(to, query []byte) []byte {
		if !is(query) {
			return nil
		}
		return append(to, query...)
	}
}

// answerDNS returns an answer with an address to a query of any type (RFC 1035, 4.1). Other packets get no answer.
func answerDNS(to, query []byte) []byte {
	if !traffic.IsQuery(query) {
		return nil
	}
	to = append(to, query...)
	to[2], to[7] = to[2]|0x80, 1
	return append(to, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1)
}

// pageBytes is the size of an answer of the web server in bytes. The page /large never ends.
const pageBytes = 8 << 10

func page(w http.ResponseWriter, r *http.Request) {
	part := make([]byte, pageBytes)
	for {
		if _, err := w.Write(part); err != nil || r.URL.Path != "/large" {
			return
		}
	}
}

// keystroke is the maximum size in bytes of an input that the SSH server answers. A larger input is a part of a file.
const keystroke = 256

// accept answers keystrokes, and reads uploads.
func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			part := make([]byte, 64<<10)
			for {
				n, err := c.Read(part)
				if err != nil {
					return
				}
				if n <= keystroke {
					_, _ = c.Write(part[:n]) // fails if the client has gone
				}
			}
		}()
	}
}
