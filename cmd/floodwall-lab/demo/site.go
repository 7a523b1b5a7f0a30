// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
)

// The addresses: the networks of the attackers and of the clients, and the network between each host and the router.
var (
	attackersNet  = netip.MustParsePrefix("198.51.100.1/24")
	clientsNet    = netip.MustParsePrefix("203.0.113.1/24")
	senders       = netip.MustParsePrefix("198.51.100.8/29")   // the attackers
	reflectors    = netip.MustParsePrefix("198.51.100.128/25") // servers that answer forged queries
	hubAddress    = netip.MustParsePrefix("192.0.2.50/29")
	routerAddress = netip.MustParseAddr("192.0.2.57") // in the network of the route reflector

	reflectorAddress = netip.MustParsePrefix("192.0.2.58/29")

	nodeAddresses = [nodes]netip.Prefix{
		netip.MustParsePrefix("192.0.2.10/29"), netip.MustParsePrefix("192.0.2.20/29"), netip.MustParsePrefix("192.0.2.30/29"),
	}
)

const (
	nodes         = 3
	quicPort      = 443 // the attacked UDP port
	uplink        = "uplink"
	fleetPageSize = 2 << 10
)

// Policy is the policy of each node. The senders of the demonstration cannot forge addresses, because its router has no route to other addresses.
const Policy = `devices: [uplink]
default: pass
checks: strict
never: [192.0.2.0/24]             # our own hosts
sets:
  bans: {dynamic: true, max: 100000, timeout: 10m}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: reflected, proto: udp, sport: 123, then: drop}
  - name: flooding
    port: udp/443
    over: {rate: 100/s, per: from, ban: {for: 10m, trust: forgeable}}
    then: drop
`

// host is one of the hosts behind the router.
type host struct {
	name    string
	address netip.Addr
	lab     *lab.Host
	uplink  *lab.Device // its only device
}

// node is a host with Floodwall. It is a web server of the fleet, or the router.
type node struct {
	host
	state    string
	instance control.Instance
}

// flags returns the flags that select this host's instance of Floodwall.
func (n *node) flags() []string { return []string{"--state", n.state, "--bpffs", n.instance.Dir} }

// site has all hosts.
type site struct {
	lab                *lab.Lab
	router             *node
	clients, attackers *lab.Host
	outside            *lab.Device // of the attackers
	hub, reflector     host
	nodes              [nodes]*node
	log                func(string)
	programs           map[string]*os.File
	served             []*process
}

// newSite makes the hosts in a lab.
func newSite(l *lab.Lab, o FleetOptions) (s *site, err error) {
	s = &site{lab: l, log: o.Log}
	if err := s.open(o.Find); err != nil {
		return nil, err
	}
	if err := s.newRouter(); err != nil {
		return nil, err
	}
	if s.attackers, s.outside, err = s.connect("attackers", attackersNet); err != nil {
		return nil, err
	}
	if s.clients, _, err = s.connect("clients", clientsNet); err != nil {
		return nil, err
	}
	if s.hub, err = s.newHost("hub", hubAddress); err != nil {
		return nil, err
	}
	if s.reflector, err = s.newHost("reflector", reflectorAddress); err != nil {
		return nil, err
	}
	for i, address := range nodeAddresses {
		if s.nodes[i], err = s.newNode(fmt.Sprintf("web-%d", i+1), address); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *site) newRouter() error {
	h, err := s.lab.Host("router")
	if err != nil {
		return err
	}
	s.router = newInstance(host{name: h.Name, address: routerAddress, lab: h})
	if err := os.Mkdir(s.router.state, 0o700); err != nil {
		return err
	}
	return h.Router()
}

func newInstance(h host) *node {
	return &node{host: h, state: filepath.Join(fleetStateDir, h.name), instance: control.Instance{Dir: "/sys/fs/bpf/" + h.name}}
}

// connect connects a new host to the router. The router's address is the next one after the network address. If the host has that address, the router
// gets the last address.
func (s *site) connect(name string, address netip.Prefix) (*lab.Host, *lab.Device, error) {
	h, err := s.lab.Host(name)
	if err != nil {
		return nil, nil, err
	}
	gateway := address.Masked().Addr().Next()
	if gateway == address.Addr() {
		gateway = gateway.Next()
	}
	device, _, err := s.lab.Connect(h, s.router.lab, lab.LinkOptions{
		A: lab.EndOptions{Name: uplink, Addrs: []netip.Prefix{address}, Queue: true},
		B: lab.EndOptions{Name: name, Addrs: []netip.Prefix{netip.PrefixFrom(gateway, address.Bits())}, Queue: true},
	})
	if err != nil {
		return nil, nil, err
	}
	return h, device, h.Route(netip.MustParsePrefix("0.0.0.0/0"), gateway, device)
}

func (s *site) newHost(name string, address netip.Prefix) (h host, err error) {
	h.name, h.address = name, address.Addr()
	h.lab, h.uplink, err = s.connect(name, address)
	return h, err
}

// newNode makes a host with a web server, and with a socket on the attacked port.
func (s *site) newNode(name string, address netip.Prefix) (*node, error) {
	h, err := s.newHost(name, address)
	if err != nil {
		return nil, err
	}
	n := newInstance(h)
	if _, err := s.lab.NewServer(h.lab, netip.AddrPortFrom(h.address, webPort), make([]byte, fleetPageSize)); err != nil {
		return nil, err
	}
	return n, os.Mkdir(n.state, 0o700)
}

// begin starts the hub and the nodes with the commands that an operator would use.
func (s *site) begin(ctx context.Context) error {
	hub := filepath.Join(fleetStateDir, "hub")
	if _, err := s.run(ctx, &s.hub, "floodwall-hub", "init", "--dir", hub, "--address", s.hub.address.String()); err != nil {
		return err
	}
	if err := s.serve(ctx, &s.hub, "serves nodes", "floodwall-hub", "run", "--dir", hub); err != nil {
		return err
	}
	for i, n := range s.nodes {
		policy, text := filepath.Join(fleetStateDir, n.name+".yaml"), Policy
		if i == 0 {
			text += upstreamOf(n.address)
		}
		if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
			return err
		}
		if err := s.join(ctx, n, hub, policy); err != nil {
			return err
		}
	}
	return s.beginUpstream(ctx)
}

// join makes a host a node of the fleet, and waits until the node is connected.
func (s *site) join(ctx context.Context, n *node, hub, policy string) error {
	flags := n.flags()
	if _, err := s.run(ctx, &n.host, append([]string{"floodwall", "apply", policy}, flags...)...); err != nil {
		return err
	}
	invitation, err := s.run(ctx, &s.hub, "floodwall-hub", "invite", n.name, "--dir", hub)
	if err != nil {
		return err
	}
	if _, err := s.run(ctx, &n.host, append(strings.Fields(invitation), flags...)...); err != nil {
		return err
	}
	return s.serve(ctx, &n.host, "is connected to hub", append([]string{"floodwall", "daemon"}, flags...)...)
}
