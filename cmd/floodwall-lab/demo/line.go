// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// The link from the router to the attacked node, and a flood of reflected packets. The flood has six times the rate of the link.
const (
	lineRate    = "12mbit"
	lineQueue   = 100 // packets, whatever their length
	floodRate   = 8000
	floodLength = 1200 // bytes of a frame
	ntpPort     = 123
)

// onTheWay is the maximum number of packets between the router's filter and the node's filter. They are in the link's queue, and in the queues of two
// devices (see judged).
const onTheWay = lineQueue + 2*(256+64)

// limitLine limits the rate of the link. The queue of the link counts packets. A queue that counts bytes would more often have space for a short
// packet of a client than for a long packet of the flood.
func (s *site) limitLine(ctx context.Context) error {
	device := s.nodes[0].name // the router's end
	for _, args := range []string{
		"qdisc replace dev " + device + " root handle 1: tbf rate " + lineRate + " burst 32k limit 128k",
		fmt.Sprintf("qdisc add dev %s parent 1: handle 2: pfifo limit %d", device, lineQueue),
	} {
		if _, err := s.tc(ctx, args); err != nil {
			return err
		}
	}
	return nil
}

// lineDrops returns the number of packets that were dropped because the link was full.
func (s *site) lineDrops(ctx context.Context) (uint64, error) {
	out, err := s.tc(ctx, "-s -j qdisc show dev "+s.nodes[0].name)
	if err != nil {
		return 0, err
	}
	var list []struct {
		Kind  string `json:"kind"`
		Drops uint64 `json:"drops"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return 0, fmt.Errorf("tc: %w: %s", err, out)
	}
	for _, q := range list {
		if q.Kind == "tbf" { // its counter includes the queue in it
			return q.Drops, nil
		}
	}
	return 0, nil // the link has no limit yet
}

// tc runs the program tc(8) at the router.
func (s *site) tc(ctx context.Context, args string) (out []byte, err error) {
	var complaint bytes.Buffer
	c := exec.CommandContext(ctx, "tc", strings.Fields(args)...)
	c.Stderr = &complaint
	err = s.router.lab.Do(func() (err error) {
		out, err = c.Output()
		return err
	})
	if err != nil {
		err = fmt.Errorf("tc %s: %w: %s", args, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, err
}

// reflected starts the flood of reflected packets. It looks as if servers got queries with the node's address as forged source, and sent long answers
// to the node.
func (w *fleetShow) reflected(ctx context.Context) error {
	return w.send(ctx, 0, floodRate, lab.Flow{From: lab.Each(reflectors), SPort: lab.Port(ntpPort), Size: floodLength})
}

// fill fills the link with the flood. The node drops the whole flood, but that does not help the clients.
func (w *fleetShow) fill(ctx context.Context) error {
	began := time.Now()
	if err := w.overflow(ctx); err != nil {
		return err
	}
	return w.rest(ctx, began)
}

// overflow starts the flood, and waits until packets are dropped because the link is full.
func (w *fleetShow) overflow(ctx context.Context) error {
	began := time.Now()
	before, err := w.site.lineDrops(ctx)
	if err != nil {
		return err
	}
	if err := w.reflected(ctx); err != nil {
		return err
	}
	return w.site.until(ctx, "packets that do not fit on the line", func() (bool, error) {
		now, err := w.site.lineDrops(ctx)
		return now > before || time.Since(began) > fullAfter, err
	})
}

// dropUpstream fills the link with the same flood. Then the operator of the node announces the flood to the router. dropUpstream waits until the
// router drops the flood, which continues.
func (w *fleetShow) dropUpstream(ctx context.Context) error {
	if err := w.overflow(ctx); err != nil {
		return err
	}
	full := time.Now()
	to := w.site.nodes[0]
	if _, err := w.site.run(ctx, &to.host, append([]string{"floodwall-bgp", "announce", to.address.String(), "--proto", "udp", "--sport", fmt.Sprint(ntpPort),
		"--for", "10m"}, to.flags()...)...); err != nil {
		return err
	}
	var sent uint64
	return w.site.until(ctx, "the router drops what "+to.name+" announced", func() (bool, error) {
		rule, drops, err := w.site.router.flowSpec(ctx)
		if err != nil || !rule || drops == 0 {
			return false, err
		}
		if sent == 0 {
			w.summary.Times.Upstream, sent = time.Since(full).Seconds(), w.sent(0)
		}
		return w.sent(0) > sent+onTheWay, nil // packets that passed the router before have arrived by then
	})
}

// fullAfter is the longest time to wait until the flood fills the link. If a machine cannot send enough packets, the demonstration continues after
// this time.
const fullAfter = 10 * time.Second

// withdraw withdraws the announcement, and waits until the router has removed its rule.
func (w *fleetShow) withdraw(ctx context.Context) error {
	n := w.site.nodes[0]
	began := time.Now()
	if _, err := w.site.run(ctx, &n.host, append([]string{"floodwall-bgp", "withdraw", n.address.String(), "--now"}, n.flags()...)...); err != nil {
		return err
	}
	err := w.site.until(ctx, "the end of the router's rule", func() (bool, error) {
		rule, _, err := w.site.router.flowSpec(ctx)
		return !rule, err
	})
	w.summary.Times.Withdrawn = time.Since(began).Seconds()
	return err
}
