// SPDX-License-Identifier: Apache-2.0

package exposed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/policy"
)

// Port is a port or a protocol for which the policy and the programs of this host differ.
type Port struct {
	Port    string `json:"port"`              // tcp/8080, or the name of a protocol of raw sockets
	Program string `json:"program,omitempty"` // the program that listens; "": unknown, or none listens
	Closed  bool   `json:"closed"`            // a program listens, and the policy drops its packets; false: the port is open, and nothing listens
	Text    string `json:"text"`              // a sentence, with the remedy
}

// Now is the list of ports that this host serves for other hosts.
type Now struct {
	Sockets []sockets.Socket
	Raw     []uint8 // the protocols of raw sockets
}

// Look lists the sockets that listen now. It leaves out sockets on the loopback device. It needs no privileges.
func Look() (l Now, err error) {
	all, err := sockets.Serving()
	if err != nil {
		return l, err
	}
	l.Sockets = slices.DeleteFunc(all, func(s sockets.Socket) bool { return s.Addr.IsLoopback() })
	l.Raw, err = sockets.RawProtocols()
	return l, err
}

// Closed returns the sockets, one for each port, and the protocols of raw sockets that no opening passes. It leaves out ports that only hosts on the
// same link use, and sockets that probably belong to clients.
func (l Now) Closed(openings []Opening) (closed []sockets.Socket, raw []uint8) {
	clients := ClientPorts()
	for _, s := range l.Sockets {
		same := func(o sockets.Socket) bool { return o.Service == s.Service }
		if !OnLink(s.Service) && !clients.Maybe(s.Service) && !Passes(openings, s.Service) && !slices.ContainsFunc(closed, same) {
			closed = append(closed, s)
		}
	}
	for _, n := range l.Raw {
		if !Passes(openings, sockets.Service{Proto: n}) {
			raw = append(raw, n)
		}
	}
	return closed, raw
}

// Unused returns the ports of services at which nothing listens. On a host that forwards packets it returns none, because the ports may be those of
// hosts behind it.
func (l Now) Unused(openings []Opening) (unused []policy.Port) {
	if facts.Forwards() {
		return nil
	}
	for _, o := range openings {
		for _, p := range o.Ports {
			listens := slices.ContainsFunc(l.Sockets, func(s sockets.Socket) bool { return covers(p, s.Service) })
			if o.Service && !listens && !slices.Contains(unused, p) {
				unused = append(unused, p)
			}
		}
	}
	return unused
}

// Follower compares repeatedly. It names programs, which takes a search in /proc, only when the result has changed.
type Follower struct {
	mu    sync.Mutex
	known string // describes the last result
	ports []Port

	asked     time.Time // when published was listed
	published []Published
	unknown   bool // whether the rules of NAT could not be listed
}

// natFor is how long a list of the rules of NAT is used. A program may run to list them.
const natFor = 10 * time.Second

// Ports returns the ports that differ: closed ports with a listening socket or a NAT rule first, then open ports without one. The parameter devices
// contains the filtered devices. Ports returns none if the sockets cannot be listed.
func (f *Follower) Ports(ctx context.Context, openings []Opening, devices []string) []Port {
	l, err := Look()
	if err != nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.asked) >= natFor {
		rules, err := netfilter.Translations(ctx)
		unfiltered, errDevices := facts.UnfilteredBeside(devices)
		f.asked, f.unknown, f.published = time.Now(), err != nil, nil
		if errDevices == nil {
			f.published = PublishedBy(rules, facts.Names(unfiltered))
		}
	}
	closed, raw := l.Closed(openings)
	unused := l.Unused(openings)
	sent := slices.DeleteFunc(slices.Clone(f.published), func(p Published) bool {
		listens := slices.ContainsFunc(closed, func(s sockets.Socket) bool { return p.First == p.Last && s.Service == p.Service() })
		return p.First == 0 || listens || !p.Closed(openings)
	})
	known := fmt.Sprint(raw, unused, sent, f.published, f.unknown)
	for _, s := range closed {
		known += " " + s.String()
	}
	if known != f.known {
		f.known, f.ports = known, closedPorts(closed, raw)
		for _, p := range sent {
			f.ports = append(f.ports, ClosedPublished(p))
		}
		if !f.unknown {
			f.ports = append(f.ports, unusedPorts(unused, f.published)...)
		}
	}
	return f.ports
}

func closedPorts(closed []sockets.Socket, raw []uint8) (list []Port) {
	var programs sockets.Owners
	if closed != nil {
		programs = sockets.Programs()
	}
	for _, s := range closed {
		list = append(list, ClosedPort(s.Service, PlainName(programs.Of(s))))
	}
	for _, n := range raw {
		list = append(list, ClosedProtocol(n))
	}
	return list
}

// unusedPorts leaves out ports that the NAT of this host sends on.
func unusedPorts(unused []policy.Port, published []Published) (list []Port) {
	for _, p := range unused {
		if !slices.ContainsFunc(published, func(o Published) bool { return o.First == 0 || o.overlaps(p) }) {
			list = append(list, Port{Port: p.String(), Text: fmt.Sprintf("%s is open, and nothing listens there", p)})
		}
	}
	return list
}

// ClosedPort describes a port at which a program listens, and which is closed.
func ClosedPort(s sockets.Service, program string) Port {
	p := Port{Port: s.String(), Program: program, Closed: true}
	name := p.Port
	if program != "" {
		name += " (" + program + ")"
	}
	if kind := PrivateAs(s); kind != "" {
		p.Text = fmt.Sprintf("%s listens and is closed, as %s is not meant for the world: name in the `from` of a service who needs it", name, kind)
	} else {
		p.Text = fmt.Sprintf("%s listens and is closed: floodwall allow %s", name, s)
	}
	return p
}

// ClosedProtocol describes a protocol, by IANA's number, for which a program listens, and which is closed.
func ClosedProtocol(n uint8) Port {
	name := ProtocolName(n)
	return Port{Port: name, Closed: true,
		Text: fmt.Sprintf("a program listens for %s, which is closed: `- {name: raw-%d, proto: %[2]d, then: pass}` under rules opens it", name, n)}
}
