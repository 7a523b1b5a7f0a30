// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// requestRate is the number of requests per second that the clients send to each web server.
const requestRate = 50

// FleetPhase is a part of the demonstration, with its results for each node.
type FleetPhase struct {
	Name  string      `json:"name"`
	Nodes [nodes]Node `json:"nodes"`
}

// Node has the results of a web server in a phase.
type Node struct {
	Name     string          `json:"name"`
	Requests lab.LoadSummary `json:"requests"`
	FleetPackets
}

// FleetPackets describes what happened to the attackers' packets to a web server.
type FleetPackets struct {
	Sent    uint64 `json:"attack_sent"`       // sent by the attackers
	Limited uint64 `json:"dropped_limited"`   // dropped because the sender exceeded its limit
	Banned  uint64 `json:"dropped_banned"`    // dropped because the sender was banned
	Mirror  uint64 `json:"dropped_reflected"` // dropped because of the source port, which is that of time servers that attackers use as reflectors
	Line    uint64 `json:"dropped_line"`      // dropped on the link from the router to the host, which was full; also packets of clients
	Router  uint64 `json:"dropped_router"`    // dropped by the router, as the host announced
	Others  uint64 `json:"dropped_others"`    // dropped by any other rule or check: these are packets of clients
	Reached uint64 `json:"reached"`           // datagrams that the host's network stack received, by its own counter
}

// Lost returns the number of packets of the attackers that never reached the host.
func (p FleetPackets) Lost() uint64 {
	return p.Sent - min(p.Sent, p.Limited+p.Banned+p.Mirror+p.Line+p.Router+p.Reached)
}

func (p FleetPackets) since(q FleetPackets) FleetPackets {
	return FleetPackets{
		Sent: p.Sent - q.Sent, Limited: p.Limited - q.Limited, Banned: p.Banned - q.Banned, Mirror: p.Mirror - q.Mirror,
		Line: p.Line - q.Line, Router: p.Router - q.Router, Others: p.Others - q.Others, Reached: p.Reached - q.Reached,
	}
}

// phase runs the clients of all nodes for a phase. In this time it calls during.
func (w *fleetShow) phase(ctx context.Context, name string, during func(context.Context) error) error {
	p := FleetPhase{Name: name}
	before, err := w.count(ctx)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	errs := make([]error, nodes+1)
	for i, n := range w.site.nodes {
		running.Go(func() {
			p.Nodes[i].Requests, errs[i] = lab.Load(ctx, lab.LoadOptions{
				Host: w.site.clients, Server: netip.AddrPortFrom(n.address, webPort), Rate: requestRate, Duration: w.options.Duration, Timeout: time.Second,
			})
		})
	}
	if during != nil {
		errs[nodes] = during(ctx)
	}
	running.Wait()
	if err := errors.Join(append(errs, ctx.Err(), w.stopFloods())...); err != nil {
		return err
	}
	after, err := w.settled(ctx)
	for i, n := range w.site.nodes {
		p.Nodes[i].Name, p.Nodes[i].FleetPackets = n.name, after[i].since(before[i])
	}
	w.summary.Phases = append(w.summary.Phases, p)
	return err
}

// counts has the counters of all nodes.
type counts [nodes]FleetPackets

func (w *fleetShow) count(ctx context.Context) (c counts, err error) {
	for i, n := range w.site.nodes {
		if c[i], err = n.count(ctx); err != nil {
			return c, err
		}
		c[i].Sent = w.sent(i)
	}
	if c[0].Line, err = w.site.lineDrops(ctx); err != nil {
		return c, err
	}
	_, drops, err := w.site.router.flowSpec(ctx)
	w.upstream = max(w.upstream, drops) // the count of a rule ends with the rule
	c[0].Router = w.upstream
	return c, err
}

// count reads the counters of Floodwall and of the host's network stack.
func (n *node) count(ctx context.Context) (p FleetPackets, err error) {
	err = n.lab.Do(func() error {
		s, err := n.instance.Status(ctx)
		if err != nil {
			return err
		}
		for _, r := range append(append(s.Rules, s.Checks...), s.Default) {
			switch {
			case r.Verdict != "drop":
			case r.Name == "banned":
				p.Banned += r.Packets
			case r.Name == "reflected":
				p.Mirror += r.Packets
			case r.Name == "flooding":
				p.Limited += r.Packets
			default:
				p.Others += r.Packets
			}
		}
		return nil
	})
	if err != nil {
		return p, err
	}
	ip, err := n.lab.IPCounts()
	p.Reached = ip.UDP
	return p, err
}

// settled returns the counters after all packets were handled. It waits until the counters no longer change.
func (w *fleetShow) settled(ctx context.Context) (c counts, err error) {
	for end := time.Now().Add(5 * time.Second); ; {
		last := c
		if c, err = w.count(ctx); err != nil || c == last || time.Now().After(end) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return c, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}
