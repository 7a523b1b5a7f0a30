// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// targets are the targets of a policy.
var targets = []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables}

// scene is a server behind a policy, with a client on one link and an attacker on another. The attacker can send any frame.
type scene struct {
	*testing.T
	control.Instance
	ctx                      context.Context
	lab                      *lab.Lab
	server, client, attacker *lab.Host
	attackerEnd, clientEnd   *lab.Device    // the ends of their links
	sockets                  []*net.UDPConn // opened by listen
}

// inScene runs a test in a scene. For the attacker, the server's addresses are 10.0.0.2 and fd00::2. For the client, they are 10.1.0.2 and fd01::2.
func inScene(t *testing.T, test func(*scene)) {
	t.Helper()
	testutil.RequireRoot(t)
	for _, tool := range []string{"nft", "iptables-restore", "ipset"} {
		testutil.RequireTool(t, tool)
	}
	s := &scene{T: t, Instance: control.Instance{Dir: filepath.Join(testutil.MountBPF(t), "floodwall")}}
	err := lab.Run(t.Context(), func(ctx context.Context, l *lab.Lab) error {
		s.ctx, s.lab = ctx, l
		if err := s.build(l); err != nil {
			return err
		}
		defer s.unload()
		test(s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *scene) build(l *lab.Lab) error {
	for name, h := range map[string]**lab.Host{"server": &s.server, "client": &s.client, "attacker": &s.attacker} {
		made, err := l.Host(name)
		if err != nil {
			return err
		}
		*h = made
	}
	for i, from := range []*lab.Host{s.attacker, s.client} {
		s.attackerEnd = s.clientEnd
		end, _, err := l.Connect(from, s.server, lab.LinkOptions{
			A: lab.EndOptions{Addrs: lab.ParseAddrs(fmt.Sprintf("10.%d.0.1/24 fd0%d::1/64", i, i))},
			B: lab.EndOptions{Addrs: lab.ParseAddrs(fmt.Sprintf("10.%d.0.2/24 fd0%d::2/64", i, i))},
		})
		if err != nil {
			return err
		}
		s.clientEnd = end
	}
	// Turn off the reverse path filter, so that only the policy can stop forged packets.
	for _, name := range []string{"all", "attacker"} {
		if err := s.server.Sysctl("ipv4/conf/"+name+"/rp_filter", "0"); err != nil {
			return err
		}
	}
	for _, r := range []string{"0.0.0.0/0 10.0.0.1", "::/0 fd00::1"} {
		if err := route(s.server, r); err != nil {
			return err
		}
	}
	return nil
}

// route adds a route to a prefix through a neighbor on a host. The format is "PREFIX NEIGHBOR".
func route(h *lab.Host, r string) error {
	to, via, _ := strings.Cut(r, " ")
	_, dst, err := net.ParseCIDR(to)
	if err == nil {
		err = h.Do(func() error { return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}) })
	}
	if err != nil {
		return fmt.Errorf("route %s: %w", r, err)
	}
	return nil
}

func (s *scene) apply(target plan.Target, text string) {
	s.Helper()
	s.applyWith(control.ApplyOptions{Target: target}, text)
}

func (s *scene) applyWith(o control.ApplyOptions, text string) {
	s.Helper()
	err := s.server.Do(func() error {
		p, err := policy.Parse("policy.yaml", []byte("devices: [attacker, client]\n"+text))
		if err == nil {
			_, err = s.Apply(s.ctx, p, o)
		}
		return err
	})
	if err != nil {
		s.Fatalf("%s: %v", o.Target, err)
	}
}

func (s *scene) unload() {
	s.Helper()
	err := s.server.Do(func() error { return s.Unload(context.WithoutCancel(s.ctx)) })
	if err != nil && !strings.Contains(err.Error(), "loaded") {
		s.Error(err)
	}
}

// counted returns the number of packets about which a rule has decided.
func (s *scene) counted(rule string) (packets uint64) {
	s.Helper()
	err := s.server.Do(func() error {
		status, err := s.Status(s.ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(status.Rules, func(r control.RuleStatus) bool { return r.Name == rule })
		if i < 0 {
			return fmt.Errorf("status has no rule %s", rule)
		}
		packets = status.Rules[i].Packets
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return packets
}

// frames builds packets for the server's device on the attacker's link.
func (s *scene) frames(lines ...string) (frames [][]byte) {
	s.Helper()
	mac := s.mac()
	for _, line := range lines {
		spec, err := packet.Parse(line)
		if err != nil {
			s.Fatalf("%s: %v", line, err)
		}
		f := spec.Frame()
		copy(f, mac)
		frames = append(frames, f)
	}
	return frames
}

// mac returns the Ethernet address of the server's device on the attacker's link.
func (s *scene) mac() (mac net.HardwareAddr) {
	s.Helper()
	err := s.server.Do(func() error {
		dev, err := netlink.LinkByName("attacker")
		if err == nil {
			mac = dev.Attrs().HardwareAddr
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return mac
}

// send makes the attacker send n frames. It repeats the given frames if n is larger.
func (s *scene) send(n int, frames [][]byte) {
	s.Helper()
	if err := s.attacker.Do(func() error { return sendFrames("server", n, frames) }); err != nil {
		s.Fatal(err)
	}
}

func sendFrames(device string, n int, frames [][]byte) error {
	dev, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	to := &unix.SockaddrLinklayer{Ifindex: dev.Attrs().Index}
	for i := range n {
		err := unix.Sendto(socket, frames[i%len(frames)], 0, to)
		for n <= len(frames) && errors.Is(err, unix.ENOBUFS) { // not a flood: each frame must arrive, but the receiver waits for a CPU
			time.Sleep(time.Millisecond)
			err = unix.Sendto(socket, frames[i%len(frames)], 0, to)
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("sending: %w", err)
		}
	}
	return nil
}

// listen opens UDP sockets that receive packets to DHCP clients.
func (s *scene) listen(addresses ...string) {
	s.Helper()
	for _, a := range addresses {
		err := s.server.Do(func() error {
			c, err := net.ListenPacket("udp", a)
			if err == nil {
				s.Cleanup(func() { c.Close() })
				s.sockets = append(s.sockets, c.(*net.UDPConn))
			}
			return err
		})
		if err != nil {
			s.Fatal(err)
		}
	}
}

// drain reads all data that is in a socket's queue.
func drain(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		for buf, err := make([]byte, 1), error(nil); err == nil; {
			_, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		}
	})
}

// serve answers each connection to a port of the server with a byte.
func (s *scene) serve(port uint16) {
	s.Helper()
	l, err := s.server.Listen(netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	if err != nil {
		s.Fatal(err)
	}
	testutil.Serve(s.T, l, func(c net.Conn) { c.Write([]byte{'.'}) })
}

// patience is the longest time until something arrives that must arrive. A full queue may lose a SYN, and the client then sends it again after one,
// three, seven and fifteen seconds.
const patience = 30 * time.Second

// request connects to the server and reads its data.
func (s *scene) request(from *lab.Host, to string) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", netip.MustParseAddrPort(to))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(patience))
	_, err = io.ReadAll(c)
	return err
}

// requests makes the client send requests until stop is closed. It returns the number of answered requests and the number of failed ones.
func (s *scene) requests(to string, stop <-chan struct{}) (answered, failed int) {
	for {
		if err := s.request(s.client, to); err != nil {
			failed++
		} else {
			answered++
		}
		select {
		case <-stop:
			return answered, failed
		default:
		}
	}
}

// stack has counters of packets that have reached the server's network stack: ICMP and ICMPv6 messages, fragments, and UDP datagrams. The counter
// marks is for datagrams to a port without a listener. They show that all earlier packets have arrived.
type stack struct{ icmp, icmpv6, fragments, udp, marks uint64 }

// stack reads the kernel's counters (Documentation/networking/snmp_counter.rst). It first reads the sockets, because the kernel counts a datagram
// when a program reads it.
func (s *scene) stack() (n stack) {
	s.Helper()
	for _, c := range s.sockets {
		if err := drain(c); err != nil {
			s.Fatal(err)
		}
	}
	err := s.server.Do(func() error {
		v4, err := counters("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		v6, err := counters("/proc/thread-self/net/snmp6")
		n = stack{
			icmp: v4["Icmp:InMsgs"], icmpv6: v6["Icmp6InMsgs"],
			fragments: v4["Ip:ReasmReqds"] + v6["Ip6ReasmReqds"],
			udp:       v4["Udp:InDatagrams"] + v4["Udp:InErrors"] + v6["Udp6InDatagrams"] + v6["Udp6InErrors"], marks: v4["Udp:NoPorts"],
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (n stack) less(o stack) stack {
	return stack{n.icmp - o.icmp, n.icmpv6 - o.icmpv6, n.fragments - o.fragments, n.udp - o.udp, n.marks - o.marks}
}

func (n stack) all() uint64 { return n.icmp + n.icmpv6 + n.fragments + n.udp }

// counters reads a file of names and numbers. A line has either a name and its number, or a line of names precedes a line of numbers.
func counters(file string) (map[string]uint64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]uint64{}
	var names []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case !strings.HasSuffix(words[0], ":"):
			out[words[0]], _ = strconv.ParseUint(words[1], 10, 64)
		case len(words) == len(names) && words[0] == names[0]:
			for i := range words {
				out[words[0]+names[i]], _ = strconv.ParseUint(words[i], 10, 64)
			}
			names = nil
		default:
			names = words
		}
	}
	return out, nil
}
