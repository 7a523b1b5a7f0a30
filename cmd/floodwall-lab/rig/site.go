// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/lab"
)

// The CPUs of the experiments. The receive thread has the highest priority on its CPU.
const (
	SourceCPU   = 0
	ReceiverCPU = 1
)

// The server's addresses. All traffic goes to them.
var (
	Server4 = netip.MustParseAddr("10.0.0.2")
	Server6 = netip.MustParseAddr("fd00::2")
)

// Site is a server host with a link from an attacker of its own. The contents of the server's namespace stay there for the whole run. An XDP
// program is attached only while it is measured: the kernel calls all attached programs through one dispatcher, which gets slower with their number.
type Site struct {
	Lab    *lab.Lab
	Server *lab.Host
	Out    *lab.Device   // of the attacker
	In     *lab.Device   // of the server
	More   []*lab.Device // of the server, also named by its policy
}

// devices returns the line of a policy with the server's devices.
func (s *Site) devices() string {
	names := []string{s.In.Name}
	for _, d := range s.More {
		names = append(names, d.Name)
	}
	return fmt.Sprintf("devices: [%s]\n", strings.Join(names, ", "))
}

// NewSite builds the n-th site of a lab, for a flood.
func NewSite(l *lab.Lab, n int) (*Site, error) {
	return ConnectSite(l, n, lab.EndOptions{}, lab.EndOptions{CPU: lab.OnCPU(ReceiverCPU), Urgent: true})
}

// NewSiteFor makes a site whose device has the Ethernet address of the packets. Programs answer no other packets.
func NewSiteFor(l *lab.Lab, address net.HardwareAddr) (*Site, error) {
	at, err := NewSite(l, 0)
	if err != nil {
		return nil, err
	}
	return at, at.Server.Do(func() error {
		link, err := netlink.LinkByName(at.In.Name)
		if err == nil {
			err = netlink.LinkSetHardwareAddr(link, address)
		}
		return err
	})
}

// ConnectSite builds the n-th site of a lab. The parameter out has the options of the attacker's end, and in the options of the server's end.
func ConnectSite(l *lab.Lab, n int, out, in lab.EndOptions) (*Site, error) {
	attacker, err := l.Host(fmt.Sprintf("attacker%d", n))
	if err != nil {
		return nil, err
	}
	s := &Site{Lab: l}
	if s.Server, err = l.Host(fmt.Sprintf("server%d", n)); err != nil {
		return nil, err
	}
	out.Addrs, in.Addrs = lab.ParseAddrs("10.0.0.1/24 fd00::1/64"), lab.ParseAddrs("10.0.0.2/24 fd00::2/64")
	s.Out, s.In, err = l.Connect(attacker, s.Server, lab.LinkOptions{A: out, B: in})
	if err != nil {
		return nil, err
	}
	// Random sources have no route back, but a rule in the filter table must see their packets.
	if err := s.Believe("all"); err != nil {
		return nil, err
	}
	return s, s.Believe(s.In.Name)
}

// Believe turns off the server's check of source addresses (rp_filter) for a device.
func (s *Site) Believe(device string) error {
	return s.Server.Sysctl("ipv4/conf/"+device+"/rp_filter", "0")
}

// Subject is the thing that a row measures: the installed state of a site, or a program to attach there.
type Subject struct {
	Site    *Site
	Program *ebpf.Program // nil: nothing to attach
}

// offer is the load of a source: packets per second, or 0 for as many as possible, sent from a CPU.
type offer struct {
	pps float64
	cpu int
}

// measure floods the subject once.
func (s Subject) measure(ctx context.Context, flows []lab.Flow, o offer, seed uint64, window time.Duration) (m lab.Measurement, err error) {
	if s.Program != nil {
		attached, err := s.Site.Lab.Attach(s.Site.In, s.Program)
		if err != nil {
			return m, err
		}
		defer attached.Close()
	}
	source, err := s.Site.Lab.NewSource(s.Site.Out, lab.SourceOptions{
		Flows: flows, CPU: o.cpu, Seed: seed, Rate: o.pps, Urgent: true,
	})
	if err != nil {
		return m, err
	}
	m, err = lab.Measure(ctx, source, s.Site.In, window)
	return m, errors.Join(err, source.Close())
}

// Flood returns UDP packets of the smallest size from any of these sources to the server.
func Flood(from []netip.Addr) lab.Flow {
	to := Server4
	if from[0].Is6() {
		to = Server6
	}
	return UDPFlood(lab.Listed(from), to, SinkPort)
}

// UDPFlood returns UDP packets from any port of some sources to one address and port.
func UDPFlood(from lab.Addresses, to netip.Addr, port uint16) lab.Flow {
	return lab.Flow{From: from, To: lab.Addr(to), SPort: lab.AnyPort, DPort: lab.Port(port)}
}

// TCPFlood returns TCP segments with these flags and options, from any port of some sources to one address and port.
func TCPFlood(from lab.Addresses, to netip.Addr, port uint16, flags lab.TCPFlags, options []byte) lab.Flow {
	f := UDPFlood(from, to, port)
	f.Proto, f.Flags, f.Options = lab.TCP, flags, options
	return f
}

// SYNPolicy protects a web server by SYN cookies at any rate. It has no devices.
const SYNPolicy = "default: drop\nservices: [{name: web, port: tcp/80, syn: {when: always, mode: host}}]\n"

// WebServer serves HTTP and SSH and drops everything else. It has no devices.
const WebServer = "default: drop\nservices: [{name: web, port: tcp/80}, {name: ssh, port: tcp/22}]\n"

// ConnectionLimit is a rule for WebServer. Only a stage after XDP can apply it, because conntrack counts its connections.
const ConnectionLimit = "rules: [{name: few, port: tcp/22, over: {connections: 5, per: from}, then: drop}]\n"

// FloodPacket returns a packet of the flood, in the notation of package packet.
func FloodPacket(from fmt.Stringer) string {
	if text := from.String(); strings.Contains(text, ":") {
		return fmt.Sprintf("udp [%s]:4000 > [%s]:53", text, Server6)
	}
	return fmt.Sprintf("udp %s:4000 > %s:53", from, Server4)
}

// FloodCatchUp keeps the attacker's rate even. An attacker that catches up at full speed after a moment without CPU overruns the queue of the
// resolver's device. A steady flood of the same rate does not.
const FloodCatchUp = 2

// SinkPort is the destination port of all packets.
const SinkPort = 53

// TestPackets is the number of packets that a test sends. The test assumes that all packets of the flow get the verdict of these.
const TestPackets = 10

// LeastLimit is the packet rate that a limit per /16 must reach on XDP, as a share of the smallest program's rate.
const LeastLimit = 0.75

// The packet rate that a text search must reach on XDP, as a multiple of the rate of iptables. Iptables searches for one string (bm) and then
// drops the packet.
const (
	LeastString  = 3 // with one string
	LeastStrings = 2 // with 64
)

// The ends of a link at sites with two links: OtherEnd, and ServerEnd on the server. ServerEnd has a queue, as a network card has.
var (
	OtherEnd  = lab.EndOptions{CPU: lab.OnCPU(SourceCPU), Urgent: true}
	ServerEnd = lab.EndOptions{CPU: lab.OnCPU(ReceiverCPU), Urgent: true, Queue: true}
)

// The addresses of the clients' link: ClientsAddr at the clients, ForClientsAddr at the server.
var ClientsAddr, ForClientsAddr = netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")

// ClientNetwork has the clients' addresses. The flood uses none of them.
var ClientNetwork = netip.MustParsePrefix("40.0.0.0/16")
