// SPDX-License-Identifier: Apache-2.0

// This file measures a fleet in one process: three real hubs and many nodes. Their connections are no sockets, and their enforcers only count. Input:
// the numbers of nodes and bans. Output: rows with a figure each, and whether it meets its bar.
//
// RunFleet does the phases, each with a site of its own (fleet_site.go).

package experiment

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// FleetOptions say how much is measured.
type FleetOptions struct {
	Nodes     int           // number of nodes in the phases with many nodes
	Few       int           // number of nodes in the phases with many bans
	Bans      int           // number of bans that a new node receives
	Rate      int           // bans per second in the sustained phase
	Sustained time.Duration // length of the sustained phase
	Partition time.Duration
	Probes    int // number of bans whose delay is measured
	Progress  io.Writer
}

// FleetRow is a measured value. Bar is the maximum that is allowed; 0: none.
type FleetRow struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bar   float64 `json:"bar,omitempty"`
}

// Missed reports whether a row exceeds its bar.
func (r FleetRow) Missed() bool { return r.Bar > 0 && r.Value > r.Bar }

// fleetRun is the state that the phases share.
type fleetRun struct {
	FleetOptions
	dir  string
	rows []FleetRow
}

func (r *fleetRun) add(what string, value float64, unit string, bar float64) {
	r.rows = append(r.rows, FleetRow{what, value, unit, bar})
}

func (r *fleetRun) say(format string, args ...any) { fmt.Fprintf(r.Progress, format+"\n", args...) }

// ampleMemory is an amount of available memory in bytes. With more memory, the heap may grow more between two garbage collections. A thousand nodes
// in one process have a larger heap than any real node. Collections of this heap would take the CPU from the nodes when all of them change their
// records at the same time.
const ampleMemory = 16 << 30

// RunFleet measures a fleet in a network namespace that has only a loopback device. dir is the directory for the state of the hubs.
func RunFleet(ctx context.Context, dir string, o FleetOptions) ([]FleetRow, error) {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return nil, fmt.Errorf("loopback device: %w", err)
	}
	if rig.AvailableMemory() > ampleMemory {
		defer debug.SetGCPercent(debug.SetGCPercent(300))
	}
	r := &fleetRun{FleetOptions: o, dir: dir}
	for _, phase := range []func(context.Context) error{r.many, r.coldStart, r.sustained} {
		if err := phase(ctx); err != nil {
			return r.rows, err
		}
	}
	return r.rows, nil
}

// percentile returns the value below which the given share of the values is.
func percentile(values []time.Duration, share float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(int(float64(len(values))*share), len(values)-1)]
}

// address returns the prefix with the number n in a block. Each phase has a block of its own.
func address(block byte, n int) netip.Prefix {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(block)<<24|uint32(n))
	return netip.PrefixFrom(netip.AddrFrom4(b), 32)
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// many measures many nodes in several situations: the time until all nodes have a ban, their cost while nothing happens, a killed hub, and a
// partition.
func (r *fleetRun) many(ctx context.Context) error {
	r.say("three hubs, %d nodes", r.Nodes)
	s, err := fleetNewSite(ctx, filepath.Join(r.dir, "many"))
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.join(r.Nodes); err != nil {
		return err
	}
	for _, phase := range []func(*fleetSite) error{r.latency, r.idle, r.killed, r.partition} {
		if err := phase(s); err != nil {
			return err
		}
	}
	return nil
}

func (r *fleetRun) latency(s *fleetSite) error {
	r.say("%d bans, one after the other", r.Probes)
	var took []time.Duration
	for i := range r.Probes {
		p := address(11, i)
		w := s.watch(p, len(s.nodes)-1)
		began := time.Now()
		s.nodes[i%len(s.nodes)].ban(p, time.Hour)
		at, err := s.wait(w, "a ban is everywhere")
		if err != nil {
			return err
		}
		took = append(took, at.Sub(began))
	}
	r.add(fmt.Sprintf("ban to all of %d nodes, p50", r.Nodes), percentile(took, 0.5).Seconds(), "s", 0)
	r.add(fmt.Sprintf("ban to all of %d nodes, p99", r.Nodes), percentile(took, 0.99).Seconds(), "s", 1)
	return nil
}

func (r *fleetRun) idle(s *fleetSite) error {
	span := min(10*time.Second, r.Partition)
	r.say("nothing, for %v", span)
	before, began := cpu(), time.Now()
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(span):
	}
	share := float64(cpu()-before) / float64(time.Since(began)) / float64(len(s.nodes))
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	r.add("CPU of an idle node, hubs included", share*100, "%", 0.5)
	r.add("memory of a node, hubs included", float64(m.HeapInuse+m.StackInuse)/float64(len(s.nodes))/1e6, "MB", 40)
	return nil
}

// killed makes a node ban a prefix after the node's hub was killed. At that time, the hub is down and the connection of the node has ended.
func (r *fleetRun) killed(s *fleetSite) error {
	r.say("a hub is killed")
	m := s.nodes[0] // a node of that hub
	s.kill(0)
	if err := s.until("the node has lost its hub", func() bool { return m.agent.Status().Hub != "a" }); err != nil {
		return err
	}
	p := address(12, 1)
	w := s.watch(p, len(s.nodes)-1)
	began := time.Now()
	m.ban(p, time.Hour)
	at, err := s.wait(w, "a ban is everywhere after a hub was killed")
	if err != nil {
		return err
	}
	r.add("ban to all from a node whose hub is killed", at.Sub(began).Seconds(), "s", 0)
	return nil
}

// partition disconnects a third of the nodes. In this time, all nodes continue to ban and to lift bans. After the partition has ended, it compares
// the bans of each node with a plain list.
func (r *fleetRun) partition(s *fleetSite) error {
	r.say("a third of the nodes is cut off for %v", r.Partition)
	third := s.nodes[:len(s.nodes)/3]
	for _, m := range third {
		m.part(true)
	}
	random := rand.New(rand.NewPCG(17, 1))
	ends := map[netip.Prefix]time.Time{} // of the bans that are in force at the end; zero: lifted
	owner := map[netip.Prefix]*member{}
	began := time.Now()
	for n := 0; time.Since(began) < r.Partition && s.ctx.Err() == nil; n++ {
		p, m := address(13, n), s.nodes[random.IntN(len(s.nodes))]
		length := time.Hour
		switch random.IntN(4) {
		case 0:
			length = time.Duration(1+random.Int64N(5)) * time.Second // most end before the healing
		}
		m.ban(p, length)
		ends[p], owner[p] = time.Now().Add(length), m
		if old := address(13, n/2); random.IntN(4) == 0 {
			owner[old].lift(old)
			ends[old] = time.Time{}
		}
		time.Sleep(time.Second / 20)
	}
	for _, m := range third {
		m.part(false)
	}
	healed := time.Now()
	next := 0 // the node to compare next; all before it were equal
	equal := s.until("all nodes are equal", func() bool {
		for ; next < len(s.nodes); next++ {
			if lost, outliving := s.nodes[next].differences(ends, owner, 1); lost+outliving > 0 {
				return false
			}
		}
		return true
	})
	took := time.Since(healed)
	lost, outliving := 0, 0
	for _, m := range s.nodes {
		l, o := m.differences(ends, owner, len(ends))
		lost, outliving = lost+l, outliving+o
	}
	r.add("all nodes equal after the partition", took.Seconds(), "s", 30)
	r.add("bans lost", float64(lost), "", 0)
	r.add("bans that outlive their end", float64(outliving), "", 0)
	return equal
}

// differences counts two kinds of bans: those that a node lacks, and those that it should not have. It stops at the number most, because a complete
// count takes the CPU from the nodes.
func (m *member) differences(ends map[netip.Prefix]time.Time, owner map[netip.Prefix]*member, most int) (lost, outliving int) {
	const slack = 2 * time.Second // the kernel's sets count seconds
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, end := range ends {
		if owner[p] == m {
			continue
		}
		if lost+outliving >= most {
			break
		}
		until, has := m.dropped[p]
		has = has && until.After(now)
		switch {
		case !has && end.After(now.Add(slack)):
			lost++
		case has && until.After(end.Add(slack)):
			outliving++
		}
	}
	return lost, outliving
}

// coldStart measures the time in which a new node receives many bans.
func (r *fleetRun) coldStart(ctx context.Context) error {
	r.say("%d bans to a new node", r.Bans)
	s, err := fleetNewSite(ctx, filepath.Join(r.dir, "cold"))
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.join(5); err != nil {
		return err
	}
	began := time.Now()
	for i := range r.Bans {
		s.nodes[i%4].ban(address(14, i), time.Hour)
	}
	have := func(m *member) func() bool { return func() bool { return m.count() >= r.Bans } }
	if err := s.until("the fleet has all bans", have(s.nodes[4])); err != nil {
		return err
	}
	r.add("bans a second of four nodes at once", float64(r.Bans)/time.Since(began).Seconds(), "/s", 0)
	began = time.Now()
	if err := s.join(1); err != nil {
		return err
	}
	if err := s.until("the new node has all bans", have(s.nodes[5])); err != nil {
		return err
	}
	r.add(fmt.Sprintf("%d bans to a new node", r.Bans), time.Since(began).Seconds(), "s", 5)
	return nil
}

// sustained makes nodes ban prefixes at a rate for some time.
func (r *fleetRun) sustained(ctx context.Context) error {
	r.say("%d bans a second for %v, %d nodes", r.Rate, r.Sustained, r.Few)
	s, err := fleetNewSite(ctx, filepath.Join(r.dir, "sustained"))
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.join(r.Few); err != nil {
		return err
	}
	before, began := cpu(), time.Now()
	total := int(float64(r.Rate) * r.Sustained.Seconds())
	var last *watch
	for i := range total {
		p := address(15, i)
		if i == total-1 {
			last = s.watch(p, len(s.nodes)-1)
		}
		s.nodes[i%len(s.nodes)].ban(p, time.Hour)
		if ahead := time.Duration(i)*time.Second/time.Duration(r.Rate) - time.Since(began); ahead > time.Millisecond {
			time.Sleep(ahead)
		}
	}
	sent := time.Now()
	at, err := s.wait(last, "the last ban is everywhere")
	if err != nil {
		return err
	}
	err = s.until("all bans are everywhere", func() bool {
		for i, m := range s.nodes {
			if own := (total - i + len(s.nodes) - 1) / len(s.nodes); m.count() < total-own {
				return false
			}
		}
		return true
	})
	r.add(fmt.Sprintf("last of %d bans a second to all of %d nodes", r.Rate, r.Few), at.Sub(sent).Seconds(), "s", 1)
	r.add("CPU of all during that", float64(cpu()-before)/float64(time.Since(began))*100, "%", 0)
	return err
}
