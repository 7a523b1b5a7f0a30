// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
)

// calmSite is a web server with two links: a plain veth to the clients, and a link to the attacker.
type calmSite struct {
	*rig.Site               // of the clients' link
	attacked  *floodedSite  // of the attacker's link
	ours      *product      // nil: there is another guard
	home      datapath.Mode // of the program when there is no flood
	session   *rig.Session
	setup     *rig.Setup
}

// calmWeb and calmBulk are the addresses of the web server, and of the other end of bulk transfers.
var calmWeb, calmBulk = netip.AddrPortFrom(rig.ForClientsAddr, 80), netip.AddrPortFrom(rig.ForClientsAddr, 8080)

// calmPolicy passes both, and drops everything else.
const calmPolicy = "devices: [%s, %s]\ndefault: drop\nxdp: %s\nservices: [{name: web, port: [tcp/80, tcp/8080]}]\n"

// build builds the site with the guard of a case.
func (s *calmSite) build(ctx context.Context, b *rig.Builder, c *calmCase) (err error) {
	b.Sites++
	s.attacked = &floodedSite{}
	if s.attacked.Site, err = rig.ConnectSite(b.Lab, b.Sites, rig.OtherEnd, rig.ServerEnd); err != nil {
		return err
	}
	host, err := b.Lab.Host(fmt.Sprintf("clients%d", b.Sites))
	if err != nil {
		return err
	}
	s.Site = &rig.Site{Lab: b.Lab, Server: s.attacked.Server}
	end := func(a netip.Addr) lab.EndOptions {
		return lab.EndOptions{Untuned: true, Addrs: []netip.Prefix{netip.PrefixFrom(a, 24)}}
	}
	if s.Out, s.In, err = b.Lab.Connect(host, s.Server, lab.LinkOptions{A: end(rig.ClientsAddr), B: end(rig.ForClientsAddr)}); err != nil {
		return err
	}
	server, err := rig.StartPlainNginx(ctx, s.Server, rig.ReceiverCPU, calmWeb)
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, server.Close)
	if c.xdp == "" {
		return b.Guard(ctx, s.Site, c.guard)
	}
	program, err := b.Find("floodwall")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "floodwall-bench-")
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, func() error { return os.RemoveAll(dir) })
	if s.ours, err = newProduct(s.Server, program, dir); err != nil {
		return err
	}
	b.Owned = append(b.Owned, s.ours.close)
	s.home = datapath.Native
	if c.xdp == calmKey {
		s.home = datapath.TC
	}
	if err := s.ours.apply(ctx, fmt.Sprintf(calmPolicy, s.In.Name, s.attacked.In.Name, c.xdp)); err != nil {
		return err
	}
	return s.ours.watch(ctx)
}

// calmWait is the longest time until the program is where it must be.
const calmWait = 30 * time.Second

// await waits until the programs of both devices have a mode, if there are programs. It asks the kernel: the daemon may answer late beside a flood.
func (s *calmSite) await(ctx context.Context, mode datapath.Mode) error {
	if s.ours == nil {
		return nil
	}
	for late := time.Now().Add(calmWait); time.Now().Before(late) && ctx.Err() == nil; wait(ctx, 50*time.Millisecond) {
		clients, err := atXDP(s.In)
		attacker, attackerErr := atXDP(s.attacked.In)
		if err := errors.Join(err, attackerErr); err != nil {
			return err
		}
		if native := mode == datapath.Native; clients == native && attacker == native {
			return nil
		}
	}
	return errors.Join(ctx.Err(), fmt.Errorf("after %v the programs are not in mode %s", calmWait, mode))
}

// calmRest is longer than the daemon works on a move back after the device is at tc. A flood that begins meanwhile would wait for that.
const calmRest = time.Second

// calmAmount is the traffic of the figures of a round.
type calmAmount struct {
	bytes    int64 // each way
	requests int
	ordinary bool // the ends of bulk do not go before other programs
}

// calmShort is the amount without a flood. On a virtual machine the speed changes by a half within a second, so rows are compared in many short rounds.
var calmShort = calmAmount{bytes: 64 << 20, requests: 1000}

// long returns an amount that outlasts the switch to XDP.
func (s *calmSite) long() calmAmount {
	return calmAmount{bytes: bulkBytes(s.session), requests: outRequests(s.session)}
}

// figures measures all figures. It calls before ahead of each, and after behind it.
func (s *calmSite) figures(ctx context.Context, a calmAmount, before, after func() error) (rig.Reading, error) {
	read := rig.Reading{}
	for _, part := range []func() error{
		func() error { return s.move(ctx, "in-", false, a, read) }, func() error { return s.move(ctx, "out-", true, a, read) }, func() error { return s.ask(ctx, a, read) },
	} {
		err := before()
		if err == nil {
			err = errors.Join(part(), after())
		}
		if err != nil {
			return nil, err
		}
	}
	return read, nil
}

// move transfers bytes between a client and the server.
func (s *calmSite) move(ctx context.Context, way string, back bool, a calmAmount, read rig.Reading) error {
	path := &streamPath{from: s.Out.Host, to: s.Server, at: calmBulk, cpus: [2]int{rig.SourceCPU, rig.ReceiverCPU}, ordinary: a.ordinary}
	before, err := s.Server.IPCounts()
	if err != nil {
		return err
	}
	moved, err := path.read(ctx, back, a.bytes)
	if err != nil {
		return err
	}
	after, err := s.Server.IPCounts()
	read[way+"MB/s"] = moved["MB/s"]
	if !back {
		read["cpu-s/GB"], read["segments/packet"] = moved["cpu-s/GB"], after.Segments(before)
	}
	return err
}

// ask sends requests.
func (s *calmSite) ask(ctx context.Context, a calmAmount, read rig.Reading) error {
	sum, err := lab.Load(ctx, lab.LoadOptions{
		Host: s.Out.Host, Server: calmWeb, Connections: 4, Requests: uint64(a.requests), Apart: true, CPU: rig.SourceCPU,
	})
	read["requests/s"], read["p99-ns"], read["failed"] = sum.Rate, float64(sum.P99), float64(sum.Failed)
	return err
}

// calm measures all figures without a flood.
func (s *calmSite) calm(ctx context.Context, _ float64) (rig.Reading, error) {
	return s.figures(ctx, calmShort, func() error { return s.await(ctx, s.home) }, func() error { return nil })
}

// begin starts a flood. The function stop ends it.
func (s *calmSite) begin(ctx context.Context, pps float64) (stop func() error, err error) {
	flood := rig.UDPFlood(lab.In(netip.MustParsePrefix("20.0.0.0/8")), rig.Server4, rig.SinkPort)
	ended, err := s.attacked.begin(ctx, []lab.Flow{flood}, pps, 1)
	return func() error {
		_, _, err := ended()
		return err
	}, err
}

// beside measures all figures beside a flood, from its second second on.
func (s *calmSite) beside(ctx context.Context, pps float64) (rig.Reading, error) {
	stop, err := s.begin(ctx, pps)
	if err != nil {
		return nil, err
	}
	wait(ctx, time.Second)
	read, err := rig.Reading(nil), s.await(ctx, datapath.Native)
	if err == nil {
		nothing := func() error { return nil }
		read, err = s.figures(ctx, s.long(), nothing, nothing)
	}
	return read, errors.Join(err, stop())
}

// beginning measures each figure while a flood begins. Bulk with a real-time priority would keep the daemon from both CPUs.
func (s *calmSite) beginning(ctx context.Context, pps float64) (rig.Reading, error) {
	var late, busy float64
	var stop func() error
	switched := make(chan error, 1)
	begin := func() (err error) {
		if err := s.await(ctx, datapath.TC); err != nil {
			return err
		}
		wait(ctx, calmRest)
		seen, err := watchPastXDP(s.attacked.In)
		if err != nil {
			return err
		}
		go func() {
			switched <- onCPU(rig.SourceCPU, lab.MostUrgent, func() error {
				took, share, err := seen.switching(ctx)
				late, busy = max(late, float64(took)/1e6), max(busy, share)
				return errors.Join(err, seen.close())
			})
		}()
		stop, err = s.begin(ctx, pps)
		return err
	}
	amount := s.long()
	amount.ordinary = true
	read, err := s.figures(ctx, amount, begin, func() error { return errors.Join(<-switched, stop()) })
	if read != nil {
		read["switch-ms"], read["receiver-busy"] = late, busy
	}
	return read, err
}
