// SPDX-License-Identifier: Apache-2.0

// This file is the experiment program: the nanoseconds that a loaded program takes for each kind of packet.

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// The sources that the policies of the experiment name.
var (
	listedSource = netip.MustParseAddr("1.2.3.4")
	bannedSource = netip.MustParseAddr("5.6.7.8")
)

// packetKind is a kind of packet that is given to the loaded programs.
type packetKind struct {
	name, label, line string
	most              float64 // the goal, in nanoseconds above the empty program; 0: none
}

// packetKinds are packets of no service. Only the rules about the two sources match any of them.
var packetKinds = []packetKind{
	{"udp4", "UDP", "udp 9.9.9.9:4000 > 10.0.0.2:53 len=46", 0},
	{"udp6", "UDP, IPv6", "udp [2400::9]:4000 > [fd00::2]:53 len=60", 0},
	{"syn", "TCP SYN with options", "tcp 9.9.9.9:40000 > 10.0.0.2:80 S tcpopts=mss:1460,sack,ts,nop,ws:7", 0},
	{"ack", "TCP ACK", "tcp 9.9.9.9:40000 > 10.0.0.2:80 . seq=1000 ack=1000", 0},
	{"echo", "ICMP echo request", "icmp 9.9.9.9 > 10.0.0.2 echo-request len=84", 0},
	{"vlan", "UDP with a VLAN tag", "udp 9.9.9.9:4000 > 10.0.0.2:53 len=46 vlan=10", 0},
	{"fragment", "UDP, a later fragment", "udp 9.9.9.9:4000 > 10.0.0.2:53 len=1500 frag=1480", 0},
	{"ext6", "UDP, IPv6 with extension headers", "udp [2400::9]:4000 > [fd00::2]:53 ext=hbh,dst", 0},
	{"arp", "not IP (ARP)", "arp 9.9.9.9 > 10.0.0.2", 0},
	{"listed", "UDP, a listed source", "udp 1.2.3.4:4000 > 10.0.0.2:53 len=46", 0},
	{"banned", "UDP, a banned source", "udp 5.6.7.8:4000 > 10.0.0.2:53 len=46", 0},
}

// column describes a program to run.
type column struct {
	name, head string
	text       string // of its policy; "" for the empty program
	leaving    bool   // it sees packets that leave, not packets that arrive

	// prepare prepares the applied policy and its program for the packets.
	prepare func(context.Context, *rig.Site, control.Instance, *ebpf.Program) error
}

// runProgram measures loaded programs with BPF_PROG_TEST_RUN: the time that they take while the packet is in the cache.
func runProgram(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		at, err := rig.NewSiteFor(l, packet.Destination())
		if err != nil {
			return err
		}
		if s.Outcome.Yardstick, err = yardstickTag(); err != nil {
			return err
		}
		p := &programs{Session: s, at: at}
		for _, t := range []*rig.Table{
			p.table("program: nanoseconds a packet, by checks", packetKinds, checksColumns()...),
			p.table("program: nanoseconds a packet, by rules that do not match; checks: standard", packetKinds, rulesColumns()...),
			p.table("program: nanoseconds a packet of a service, by its protection", serviceKinds(), serviceColumns()...),
			p.table("program: nanoseconds a reply to what has left", replyKinds(), repliesColumn("replies", false)),
			p.table("program: nanoseconds a packet that leaves", leavingKinds, repliesColumn("leaving", true)),
			p.udpTable(rig.UDPServices[0]), p.udpTable(rig.UDPServices[1]), p.udpTable(rig.UDPServices[2]), p.udpTable(rig.RakNetServer),
		} {
			if _, err := p.run(ctx, t); err != nil {
				return err
			}
		}
		return p.bpfilter(ctx)
	})
}

// aboveEmpty is the unit for the difference in nanoseconds between a program and the empty one in the same round.
const aboveEmpty = "above-empty-ns"

// The method table returns a table with a column for each wanted program, after the empty one, and a line for each kind of packet. The rows of a
// program are a stage.
func (p *programs) table(title string, kinds []packetKind, columns ...column) *rig.Table {
	columns = append([]column{{name: "empty", head: "empty", leaving: columns[0].leaving}}, columns...)
	columns = slices.DeleteFunc(columns, func(c column) bool {
		return !slices.ContainsFunc(kinds, func(k packetKind) bool { return p.Wants(c.row(k)) })
	})
	t := &rig.Table{Title: title, Bare: true, Results: []string{"ns/op", "of-yardstick"}, Notes: []string{
		"By BPF_PROG_TEST_RUN: the thread's own time, the smallest of some runs in each round, and the median of the rounds, for",
		"which programs are loaded anew. The packet is in the cache. The empty program's time is that of the run itself: what a",
		"program costs is what it adds.",
	}}
	for _, c := range columns {
		t.Columns = append(t.Columns, rig.Column{Head: c.head, Unit: "ns/op", Show: rig.Digits(1, 1), Load: c.name})
	}
	t.Before = func(ctx context.Context, _, stage int) error { return p.load(ctx, columns[stage], stage == 0) }
	for _, k := range kinds {
		var empty *rig.Row
		for stage, c := range columns {
			r := &rig.Row{Name: c.row(k), Label: k.label, Line: k.name, Load: c.name, Stage: stage}
			r.Take = func(ctx context.Context, round int) (rig.Reading, error) {
				read, err := p.read(ctx, k)
				if err == nil && empty != nil && empty != r && len(empty.Rounds) > round {
					read[aboveEmpty] = read["ns/op"] - empty.Rounds[round]["ns/op"]
				}
				return read, err
			}
			if c.text == "" {
				empty = r
			} else if k.most > 0 {
				r.Goals = []rig.Goal{{Unit: aboveEmpty, What: "ns above empty", Bound: k.most, Most: true}}
			}
			t.Rows = append(t.Rows, r)
		}
	}
	return t
}

func checksColumns() (columns []column) {
	for _, profile := range []string{"off", "standard", "strict"} {
		columns = append(columns, column{
			name: "checks=" + profile, head: profile, text: programPolicy(profile, 0), prepare: banSource,
		})
	}
	return columns
}

func rulesColumns() (columns []column) {
	for _, c := range rig.RuleCounts {
		columns = append(columns, column{
			name: fmt.Sprintf("rules=%d", c.Rules), head: report.CountText(c.Rules), text: programPolicy("standard", c.Rules), prepare: banSource,
		})
	}
	return columns
}

// programPolicy returns a policy with a list of one address, space for bans, and n other rules.
func programPolicy(checks string, n int) string {
	rules := "rules:\n" + strings.TrimPrefix(rig.PolicyRules(n), "rules:\n")
	return "default: drop\nchecks: " + checks + "\n" +
		"sets: {listed: [" + listedSource.String() + "], bans: {dynamic: true, max: 100000}}\n" +
		rules + "  - {name: listed, from: [$listed, $bans], then: drop}\n"
}

// row returns the name of the program's figure for a kind of packet.
func (c column) row(k packetKind) string { return c.resultName() + "/packet=" + k.name }

// resultName returns the column's part of the names of results. For Floodwall it starts with its name.
func (c column) resultName() string { return report.Choice(c.text == "", "", "floodwall/") + c.name }

// install loads the column's program and attaches it to the site's device, until remove is called. When the kernel runs an XDP program that is not in
// its dispatcher, it enters the program there. For this it waits for all CPUs.
func (c column) install(ctx context.Context, at *rig.Site) (p *ebpf.Program, remove func() error, err error) {
	switch {
	case c.text == "" && c.leaving:
		return installEmptyLeaving()
	case c.text == "":
		return installEmpty(at)
	}
	held, err := at.Install(ctx, c.text, rig.TargetOptions("native"))
	if err != nil {
		return nil, nil, err
	}
	remove = held.Remove
	err = at.Server.Do(func() error {
		open := rig.AttachedProgram
		if c.leaving {
			open = rig.EgressProgram
		}
		if p, err = open(at.In.Name); err != nil {
			return err
		}
		remove = func() error { return errors.Join(p.Close(), held.Remove()) }
		return c.prepare(ctx, at, held.Instance, p)
	})
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return p, remove, nil
}

func installEmpty(at *rig.Site) (p *ebpf.Program, remove func() error, err error) {
	p, err = rig.LoadInstructions("empty", asm.Mov.Imm(asm.R0, rig.XDPDrop), asm.Return())
	if err != nil {
		return nil, nil, err
	}
	attached, err := at.Lab.Attach(at.In, p)
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	return p, func() error { return errors.Join(attached.Close(), p.Close()) }, nil
}

// banSource bans the banned source, and checks that the program has the ban.
func banSource(ctx context.Context, _ *rig.Site, in control.Instance, _ *ebpf.Program) error {
	p := netip.PrefixFrom(bannedSource, bannedSource.BitLen())
	if _, err := in.Block(ctx, "bans", []ban.Ban{{Prefix: p, Until: ban.Never}}); err != nil {
		return err
	}
	return rig.Expect(map[string]string{
		rig.FloodPacket(bannedSource): "listed", rig.FloodPacket(listedSource): "listed",
		rig.FloodPacket(rig.Addr4(0x09090909)): "default",
	})(ctx, in)
}

// A figure of a round is the smallest result of this number of runs, because every disturbance only adds time. Each run is shorter than the
// scheduler's time slice.
const (
	runs       = 8
	fullRepeat = 20_000
)

// programs contains the site of all programs, and the programs that are loaded now.
type programs struct {
	*rig.Session
	at                 *rig.Site
	program, yardstick *ebpf.Program
	installed          []func() error // remove the yardstick and the program
}

// run measures the programs of a table with every kind of packet, in rounds. Each round loads all programs anew, because the addresses of a program
// and of its maps change its time by some percent. The difference between two runs of the bench must not be larger than between two rounds of one
// run.
func (p *programs) run(ctx context.Context, t *rig.Table) (*report.Table, error) {
	s := *p.Session
	s.Rounds *= 2
	if err := s.SetUpRows(ctx, t); err != nil {
		return nil, err
	}
	err := s.TakeAll(ctx, t)
	return t.Publish(p.Outcome), errors.Join(err, p.unload(0))
}

// load replaces the previous program by the program of a column. For the first column of a round it also loads the yardstick anew. The yardstick is
// attached elsewhere (see install). It shows the machine's current speed for programs like Floodwall's: neighbors on the core and in its caches slow
// both down equally, for longer than a run takes. Because of these neighbors, the same build is up to 5% slower in one run than in another. Measured
// by the yardstick, it is up to 2% slower.
func (p *programs) load(ctx context.Context, c column, first bool) (err error) {
	if first {
		if err := p.unload(0); err != nil {
			return err
		}
		if p.yardstick, err = rig.LoadPeerProgram(rig.Yardstick); err != nil {
			return err
		}
		p.installed = append(p.installed, p.yardstick.Close)
		attached, err := p.at.Lab.Attach(p.at.Out, p.yardstick)
		if err != nil {
			return err
		}
		p.installed = append(p.installed, attached.Close)
	}
	if err := p.unload(2); err != nil {
		return err
	}
	program, remove, err := c.install(ctx, p.at)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	p.program, p.installed = program, append(p.installed, remove)
	return nil
}

// unload removes the things that load has installed, except the given number of the first ones.
func (p *programs) unload(but int) (err error) {
	for n := len(p.installed) - 1; n >= but; n-- {
		err = errors.Join(err, p.installed[n]())
		p.installed = p.installed[:n]
	}
	return err
}

// read runs the program on a kind of packet, in turn with the yardstick.
func (p *programs) read(ctx context.Context, k packetKind) (read rig.Reading, err error) {
	frame, err := rig.Frame(k.line)
	if err != nil {
		return nil, err
	}
	err = onCPU(rig.ReceiverCPU, lab.MoreUrgent, func() error {
		ns, yardstick, err := fastestPair(ctx, p.program, p.yardstick, frame, report.Choice(p.Quick, fullRepeat/10, fullRepeat))
		read = rig.Reading{"ns/op": ns, "of-yardstick": yardstick / ns}
		return err
	})
	return read, err
}

// yardstickTag returns the kernel's tag of the yardstick.
func yardstickTag() (string, error) {
	p, err := rig.LoadPeerProgram(rig.Yardstick)
	if err != nil {
		return "", err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "", fmt.Errorf("yardstick: %w", err)
	}
	return info.Tag, nil
}

// fastestPair returns the shortest nanoseconds of two programs, which are run in turn.
func fastestPair(ctx context.Context, a, b *ebpf.Program, frame []byte, repeat int) (bestA, bestB float64, err error) {
	bestA, bestB = math.Inf(1), math.Inf(1)
	for range runs {
		nsA, errA := runTime(a, frame, repeat)
		nsB, errB := runTime(b, frame, repeat)
		if err := cmp.Or(errA, errB, ctx.Err()); err != nil {
			return 0, 0, err
		}
		bestA, bestB = min(bestA, nsA), min(bestB, nsB)
	}
	return bestA, bestB, nil
}

// runTime returns the nanoseconds of a run of a program. The kernel's own result has whole nanoseconds, and includes time in which other threads had
// the CPU. The thread's CPU time has neither problem, but includes the system call: a hundredth of a nanosecond.
func runTime(p *ebpf.Program, frame []byte, repeat int) (float64, error) {
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	if _, _, err := p.Benchmark(frame, repeat, nil); err != nil {
		return 0, err
	}
	after, err := threadTime()
	return float64(after-before) / float64(repeat), err
}

// threadTime returns the CPU time of the calling thread.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("thread's clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// onCPU runs fn on a separate thread with a priority, pinned to a CPU. The thread ends when fn returns.
func onCPU(cpu, priority int, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its CPU, ends with the goroutine
		if err := lab.Place(cpu, priority); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}
