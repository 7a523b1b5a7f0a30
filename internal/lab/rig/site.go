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

// Where things run. The receive thread goes before all else on its CPU.
const (
	SourceCPU   = 0
	ReceiverCPU = 1
)

// The server's addresses, to which all traffic goes.
var (
	Server4 = netip.MustParseAddr("10.0.0.2")
	Server6 = netip.MustParseAddr("fd00::2")
)

// Site is a server host with a link from an attacker of its own. What is installed in the server's namespace stays
// there for the whole run; an XDP program is attached only while it is measured, because the kernel calls all programs
// that are attached anywhere through one dispatcher, which costs the more the more there are.
type Site struct {
	Lab    *lab.Lab
	Server *lab.Host
	Out    *lab.Device   // of the attacker
	In     *lab.Device   // of the server
	More   []*lab.Device // of the server, which its policy is for as well
}

// devices is the line of a policy that names the server's devices.
func (s *Site) devices() string {
	names := []string{s.In.Name}
	for _, d := range s.More {
		names = append(names, d.Name)
	}
	return fmt.Sprintf("devices: [%s]\n", strings.Join(names, ", "))
}

// NewSite builds the n-th site of a lab, to flood.
func NewSite(l *lab.Lab, n int) (*Site, error) {
	return ConnectSite(l, n, lab.EndOptions{}, lab.EndOptions{CPU: lab.OnCPU(ReceiverCPU), Urgent: true})
}

// NewSiteFor makes a site whose device has the Ethernet address that packets are for, as programs answer no others.
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

// ConnectSite builds the n-th site of a lab. The attacker's and the server's end receive as out and in say.
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
	// Random sources have no route back, and a rule in the filter table must see them all the same.
	if err := s.Believe("all"); err != nil {
		return nil, err
	}
	return s, s.Believe(s.In.Name)
}

// Believe has the server take packets of a device whatever their source.
func (s *Site) Believe(device string) error {
	return s.Server.Sysctl("ipv4/conf/"+device+"/rp_filter", "0")
}

// Subject is what a row measures: what is installed at a site, or a program to attach there.
type Subject struct {
	Site    *Site
	Program *ebpf.Program // nil: nothing to attach
}

// offer is what a source sends: packets per second, or as many as it can for 0, from a CPU.
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

// Flood is UDP packets of the least size from any of these sources to the server.
func Flood(from []netip.Addr) lab.Flow {
	to := Server4
	if from[0].Is6() {
		to = Server6
	}
	return UDPFlood(lab.Listed(from), to, SinkPort)
}

// UDPFlood is UDP packets from any port of some sources to one address and port.
func UDPFlood(from lab.Addresses, to netip.Addr, port uint16) lab.Flow {
	return lab.Flow{From: from, To: lab.Addr(to), SPort: lab.AnyPort, DPort: lab.Port(port)}
}

// TCPFlood is TCP segments with these flags and options, likewise.
func TCPFlood(from lab.Addresses, to netip.Addr, port uint16, flags lab.TCPFlags, options []byte) lab.Flow {
	f := UDPFlood(from, to, port)
	f.Proto, f.Flags, f.Options = lab.TCP, flags, options
	return f
}

// SYNPolicy protects a web server by SYN cookies, whatever the rate. It is without its devices.
const SYNPolicy = "default: drop\nservices: [{name: web, port: tcp/80, syn: {when: always, mode: host}}]\n"

// WebServer serves HTTP and SSH and drops all else. It is without its devices.
const WebServer = "default: drop\nservices: [{name: web, port: tcp/80}, {name: ssh, port: tcp/22}]\n"

// ConnectionLimit is a rule beside those services that only a later stage than XDP can decide: conntrack counts its connections.
const ConnectionLimit = "rules: [{name: few, port: tcp/22, over: {connections: 5, per: from}, then: drop}]\n"

// FloodPacket is a packet of the flood, in the notation of package packet.
func FloodPacket(from fmt.Stringer) string {
	if text := from.String(); strings.Contains(text, ":") {
		return fmt.Sprintf("udp [%s]:4000 > [%s]:53", text, Server6)
	}
	return fmt.Sprintf("udp %s:4000 > %s:53", from, Server4)
}

// FloodCatchUp keeps the attacker's rate even: one that makes up for a moment without CPU at full speed overruns the queue
// of the resolver's device, which a flood of its rate does not.
const FloodCatchUp = 2

// SinkPort is where all packets go.
const SinkPort = 53

// TestPackets is how many packets tell what becomes of all.
const TestPackets = 10
