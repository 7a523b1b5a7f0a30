// SPDX-License-Identifier: Apache-2.0

package exposed

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/os/sockets"
	"github.com/floodwall/floodwall/policy"
)

// Published is a range of ports that the NAT of this host sends on to another destination.
type Published struct {
	policy.Port        // of one protocol; zero if the rule does not say which ports
	To          string // the destinations
	Rule        string // for a rule that does not say which ports: its text, or its table
}

// Service returns the first port of the range.
func (p Published) Service() sockets.Service { return sockets.Service{Proto: p.Proto, Port: p.First} }

// By names the destination like a program.
func (p Published) By() string { return "by NAT, " + p.To }

// PublishedBy lists the ports that NAT rules forward, with one entry for IPv4 and IPv6. It leaves out rules for packets of other devices than those
// that are filtered, and rules for addresses that other hosts do not know: those of the loopback device, and private ones in no network of this
// host. An address in such a network may be a virtual one that another router has now (VRRP).
func PublishedBy(rules []netfilter.Translation, unfiltered []string) (list []Published) {
	own, _ := sockets.OwnNetworks() // if they are unknown, private ones are left out
	for _, t := range rules {
		inner := t.For.IsValid() && t.For.IsSingleIP() && t.For.Addr().IsPrivate() &&
			!slices.ContainsFunc(own, func(n netip.Prefix) bool { return n.Contains(t.For.Addr()) })
		if t.For.IsValid() && t.For.Addr().IsLoopback() || inner || slices.Contains(unfiltered, t.In) {
			continue
		}
		to := cmp.Or(PlainName(strings.Join(t.To, " and ")), "another host")
		if t.Open {
			list = append(list, Published{To: to, Rule: PlainName(cmp.Or(t.Rule, t.Table))})
		}
		for _, r := range t.Ports {
			for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				if t.Proto == 0 || t.Proto == proto {
					list = add(list, Published{Port: policy.Port{Proto: proto, First: uint16(r.First), Last: uint16(r.Last)}, To: to})
				}
			}
		}
	}
	return list
}

// longest is how many ports a range may have that is divided into its ports. Neighbours such as 80 and 81 in a list of one rule are such a range.
const longest = 16

// add appends a range, divided if it is short. Ports that are in the list get one more destination.
func add(list []Published, p Published) []Published {
	if n := p.Last - p.First; n > 0 && n < longest {
		for i := range n + 1 {
			one := p
			one.First, one.Last = p.First+i, p.First+i
			list = add(list, one)
		}
		return list
	}
	i := slices.IndexFunc(list, func(o Published) bool { return o.Port == p.Port })
	if i < 0 {
		return append(list, p)
	}
	if !slices.Contains(strings.Split(list[i].To, " and "), p.To) {
		list[i].To += " and " + p.To
	}
	return list
}

func (p Published) overlaps(o policy.Port) bool {
	return (o.Proto == 0 || o.Proto == p.Proto) && p.First <= o.Last && o.First <= p.Last
}

// Closed reports whether one of the ports passes no opening.
func (p Published) Closed(openings []Opening) bool {
	for port := uint32(p.First); port <= uint32(p.Last); port++ {
		if !Passes(openings, sockets.Service{Proto: p.Proto, Port: uint16(port)}) {
			return true
		}
	}
	return false
}

// ClosedPublished describes ports that NAT sends on, and that are closed.
func ClosedPublished(p Published) Port {
	c := Port{Port: p.Port.String(), Program: p.By(), Closed: true}
	name := c.Port + " is sent on by NAT to " + p.To
	switch kind := PrivateAs(p.Service()); {
	case p.Port == policy.Port{}:
		c.Port = "NAT"
		c.Text = "what NAT sends on to " + p.To + " is closed at every port that is not open above (" + p.Rule + "): floodwall allow PORT opens one"
	case kind != "" && p.First == p.Last:
		c.Text = name + " and closed, as " + kind + " is not meant for the world: name in the `from` of a service who needs it"
	default:
		c.Text = name + " and closed: floodwall allow " + c.Port
	}
	return c
}
