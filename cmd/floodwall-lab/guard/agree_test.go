// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// variedPolicy has the features that the guard's policies lack: payload, DNS, a sample of dropped packets, and dynamic sets.
const variedPolicy = `default: drop
checks: strict
sets: {bans: {dynamic: true, max: 1000, timeout: 1h}}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: text, proto: udp, payload: {contains: "evil"}, then: drop, sample: 1/1}
  - {name: any, proto: udp, port: 53, dns: {type: [ANY]}, then: truncate}
services:
  - {name: dns, port: [udp/53, tcp/53], guard: dns, track: false}
`

// routerPolicy uses the cookies of the kernel and its conntrack. The interpreter does not know the key of the cookies, so the sequence number of an
// answer may differ.
const (
	routerPolicy = "default: drop\nservices: [{name: web, port: tcp/80, syn: {when: always, mode: router}}]\n"
	router       = "router"
)

// TestAgrees runs frames in the interpreter and in the kernel. Both must do the same with each, and leave the same frame. The frames are all kinds of
// packets, a connection from its first SYN on, and random frames.
func TestAgrees(t *testing.T) {
	testutil.RequireRoot(t)
	random := testutil.Random(t)
	inLab(t, func(g *guard) error {
		all := append([]subject{
			{policy(variedPolicy), []kind{dropped("varied", "udp 9.9.9.9:4000 > 10.0.0.2:60 len=46")}},
			{policy(routerPolicy), []kind{dropped(router, syn), dropped("", stray)}},
		}, subjects...)
		for _, s := range all {
			if slices.Contains([]string{"rules=0", "rules=20/standard", "rules=10000"}, strings.TrimPrefix(s.kinds[0].name, "tc/")) && !testutil.Long() {
				continue // they do the same as others, and the last takes as long as all of these together
			}
			err := s.open(context.Background(), g, func(p *ebpf.Program) error {
				m, err := OpenProgram(p)
				if err != nil {
					return err
				}
				defer m.Close()
				a := &agreement{t, s.kinds[0].name, m, p}
				return onCPU0(func() {
					a.kinds(g, s.kinds)
					for range testutil.Scaled(200, 20_000) {
						a.frame(packet.Random(random, hints(g)))
					}
				})
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// hints returns the addresses and ports of the policies.
func hints(g *guard) packet.Hints {
	h := packet.Hints{Texts: [][]byte{[]byte("evil")}, Names: []string{"example."}}
	for _, a := range []string{"9.9.9.9/32", "10.0.0.2/32", "2400::9/128", "10.0.1.0/24", "172.16.0.0/16", "198.18.1.0/24"} {
		h.Addrs = append(h.Addrs, netip.MustParsePrefix(a))
	}
	if g.list != nil {
		h.Addrs = append(h.Addrs, netip.PrefixFrom(g.list.Listed[0], 32))
	}
	h.Values[packet.DPort] = []uint32{53, 80, 1001, 1003, packet.PortUDP + 53, packet.PortUDP + 1001}
	return h
}

// onCPU0 runs fn on CPU 0, whose part of per-CPU maps the interpreter has. The caller has its thread for itself.
func onCPU0(fn func()) error {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	one.Set(0)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	fn()
	return unix.SchedSetaffinity(0, &before)
}

// inLab runs a test with a guard.
func inLab(t *testing.T, fn func(*guard) error) {
	t.Helper()
	err := rig.InLab(context.Background(), func(l *lab.Lab) (err error) {
		g := &guard{listLength: 20_000, place: "native", found: map[string]Counts{}, lines: map[string][]Line{}}
		if g.at, err = rig.NewSiteFor(l, packet.Destination()); err != nil {
			return err
		}
		return fn(g)
	})
	if err != nil {
		t.Fatal(err)
	}
}

type agreement struct {
	t    *testing.T
	name string
	m    *Machine
	p    *ebpf.Program
}

// kinds runs the packets of the kinds in both.
func (a *agreement) kinds(g *guard, kinds []kind) {
	for _, k := range kinds {
		if k.reply != nil {
			a.line(k.reply(a.line(k.before)))
		}
		for i, line := range k.lines(g) {
			if i < 100 {
				a.line(line)
			}
		}
	}
}

// line runs a packet in both, and returns the resulting frame.
func (a *agreement) line(line string) []byte {
	spec, err := packet.Parse(line)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.frame(spec.Frame())
}

// ipv6Header is the length of an IPv6 header in bytes.
const ipv6Header = 40

// tries is the number of times that a frame is run in both before a difference counts, and pause is the time between two tries. The result may
// depend on the clock. It continues between the two runs, and the coarse clock that the kernel's run reads is up to 6 ms behind the interpreter's
// (bpf/clock.h). A time that the one has reached, the other has reached after the pause.
const (
	tries = 3
	pause = 20 * time.Millisecond
)

// frame runs a frame in both: first in the machine, which reads the maps, then in the kernel, which writes to them.
func (a *agreement) frame(frame []byte) (after []byte) {
	a.t.Helper()
	for try := 1; ; try++ {
		a.m.Forget()
		got, err := a.m.Run(frame)
		if err != nil {
			a.t.Fatalf("%s: frame %x: %v", a.name, frame, err)
		}
		a.lines(got.Instructions)
		action, after, err := a.p.Test(frame)
		if errors.Is(err, unix.EINVAL) && a.p.Type() == ebpf.SchedCLS && len(frame) < ethernetHeader+ipv6Header {
			return nil // the kernel runs no program of tc on a frame that is cut short within its IP header
		}
		if err != nil {
			a.t.Fatalf("%s: frame %x: %v", a.name, frame, err)
		}
		if got.Action == action && (bytes.Equal(got.Frame, after) || a.name == router && action == rig.XDPTX) {
			return after
		}
		if try == tries {
			a.t.Errorf("%s: frame %x: action %d, frame %x; in the kernel %d, %x", a.name, frame, got.Action, got.Frame, action, after)
			return after
		}
		time.Sleep(pause)
	}
}

// lines checks that each executed instruction is of one line, and of a function that has a name.
func (a *agreement) lines(executed int) {
	a.t.Helper()
	for _, l := range a.m.Lines() {
		executed -= l.Instructions
		if l.Function == "" && l.Source != "" {
			a.t.Errorf("%s: %+v has no function", a.name, l)
		}
	}
	if executed != 0 {
		a.t.Errorf("%s: %d of the executed instructions are of no line", a.name, executed)
	}
}

// TestSame counts twice, with the random keys of another generation. The figures must be the same.
func TestSame(t *testing.T) {
	testutil.RequireRoot(t)
	bounds := []Bound{{Kind: "limit/over"}, {Kind: "syn"}, {Kind: "ack"}, {Kind: "connection"}}
	var first []Finding
	for range testutil.Scaled(2, 20) {
		found, err := Measure(context.Background(), bounds, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = found
		}
		for i, f := range found {
			if f.Instructions != first[i].Instructions {
				t.Errorf("%s: %d instructions, then %d", f.Kind, first[i].Instructions, f.Instructions)
			}
		}
	}
}

// TestShared counts the writes to memory that all CPUs share. If several CPUs write to a cache line, it moves between them with each packet. Only
// packets that are charged to a limit write there, to the line of their prefix: a packet within a limit, and an answer to a SYN, which has a limit
// for each prefix. The note that a cookie was sent for a flow is written once in its time slot. So it is not written for the second SYN, which is
// counted here.
func TestShared(t *testing.T) {
	testutil.RequireRoot(t)
	want := map[string]int{
		"rules=20/strict": 0, "rules=500/listed": 0, "limit/over": 0, "limit/within": 1, "syn": 1, "ack": 0, "connection": 0,
	}
	var bounds []Bound
	for kind := range want {
		bounds = append(bounds, Bound{Kind: kind})
	}
	found, err := Measure(context.Background(), bounds, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Shared != want[f.Kind] {
			t.Errorf("%s: %d writes to shared memory, want %d", f.Kind, f.Shared, want[f.Kind])
		}
	}
}
