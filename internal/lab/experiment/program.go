// This file is the experiment of that name: nanoseconds of the loaded program per kind of packet.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/model/packet"
)

// The sources that the policies of `program` know.
var (
	listedSource = netip.MustParseAddr("1.2.3.4")
	bannedSource = netip.MustParseAddr("5.6.7.8")
)

// packetKind is a kind of packet that is given to the loaded programs.
type packetKind struct {
	name, label, line string
	most              float64 // nanoseconds above the empty program; 0: none are asked for
}

// packetKinds are of no service. No rule but those about the two sources matches.
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

// column is a program to run.
type column struct {
	name, head string
	text       string // of its policy; "" for the empty program
	leaving    bool   // it sees what leaves, not what arrives
	prepare    preparation
	figures    []report.Samples // nanoseconds, of each kind of packet
	shares     []report.Samples // the yardstick's nanoseconds in the same moments, by these
}

// preparation readies a policy that is applied, and its program, for what they are given.
type preparation func(context.Context, *rig.Site, control.Instance, *ebpf.Program) error

// table is programs, and the packets that each of them is given.
type table struct {
	title   string
	kinds   []packetKind
	columns []*column
}

// newTable makes a table, whose first column is the empty program.
func newTable(title string, kinds []packetKind, columns ...*column) *table {
	t := &table{title, kinds, append([]*column{{name: "empty", head: "empty"}}, columns...)}
	for _, c := range t.columns {
		c.figures, c.shares = make([]report.Samples, len(kinds)), make([]report.Samples, len(kinds))
	}
	return t
}

// ofLeaving is the same table, of packets that leave.
func (t *table) ofLeaving() *table {
	for _, c := range t.columns {
		c.leaving = true
	}
	return t
}

// runProgram measures loaded programs by BPF_PROG_TEST_RUN: what they cost when the packet is in the cache.
func runProgram(ctx context.Context, s *rig.Session) error {
	return rig.InLab(ctx, func(l *lab.Lab) error {
		at, err := rig.NewSiteFor(l, packet.Destination())
		if err != nil {
			return err
		}
		if s.Outcome.Yardstick, err = yardstickTag(); err != nil {
			return err
		}
		for _, t := range []*table{
			newTable("program: nanoseconds a packet, by checks", packetKinds, checksColumns()...),
			newTable("program: nanoseconds a packet, by rules that do not match; checks: standard", packetKinds, rulesColumns()...),
			newTable("program: nanoseconds a packet of a service, by its protection", serviceKinds(), serviceColumns()...),
			newTable("program: nanoseconds a reply to what has left", replyKinds(), repliesColumn("replies")),
			newTable("program: nanoseconds a packet that leaves", leavingKinds, repliesColumn("leaving")).ofLeaving(),
			udpTable(rig.UDPServices[0]), udpTable(rig.UDPServices[1]), udpTable(rig.UDPServices[2]), udpTable(rig.RakNetServer),
		} {
			if t.keep(s.Wants); len(t.columns) == 0 {
				continue
			}
			err := t.run(ctx, s, at)
			s.Outcome.Tables = append(s.Outcome.Tables, t.publish(s))
			t.bars(s)
			if err != nil {
				return err
			}
		}
		return runBpfilter(ctx, s, at)
	})
}

func checksColumns() (columns []*column) {
	for _, profile := range []string{"off", "standard", "strict"} {
		columns = append(columns, &column{
			name: "checks=" + profile, head: profile, text: programPolicy(profile, 0), prepare: banSource,
		})
	}
	return columns
}

func rulesColumns() (columns []*column) {
	for _, c := range rig.RuleCounts {
		columns = append(columns, &column{
			name: fmt.Sprintf("rules=%d", c.Rules), head: report.CountText(c.Rules), text: programPolicy("standard", c.Rules), prepare: banSource,
		})
	}
	return columns
}

// programPolicy is one with a list of one address, room for bans, and n other rules.
func programPolicy(checks string, n int) string {
	rules := "rules:\n" + strings.TrimPrefix(rig.PolicyRules(n), "rules:\n")
	return "default: drop\nchecks: " + checks + "\n" +
		"sets: {listed: [" + listedSource.String() + "], bans: {dynamic: true, max: 100000}}\n" +
		rules + "  - {name: listed, from: [$listed, $bans], then: drop}\n"
}

// keep leaves out the columns of which no row is wanted.
func (t *table) keep(wanted func(row string) bool) {
	t.columns = slices.DeleteFunc(t.columns, func(c *column) bool {
		return !slices.ContainsFunc(t.kinds, func(k packetKind) bool { return wanted(c.row(k)) })
	})
}

// row is what the program's figure with a kind of packet is called.
func (c *column) row(k packetKind) string { return c.resultName() + "/packet=" + k.name }

// resultName is the column's part of the names of results: Floodwall's have its name.
func (c *column) resultName() string { return report.Choice(c.text == "", "", "floodwall/") + c.name }

// install gets the column's program into the kernel, attached to the site's device, until it is removed: the kernel enters each
// that it runs in its dispatcher of XDP programs, for which it waits for all CPUs, unless it is there already.
func (c *column) install(ctx context.Context, at *rig.Site) (p *ebpf.Program, remove func() error, err error) {
	switch {
	case c.text == "" && c.leaving:
		return installEmptyLeaving()
	case c.text == "":
		return installEmpty(at)
	}
	held, err := at.Install(ctx, c.text, rig.TargetOptions("xdp"))
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

// banSource bans the banned source, and sees to it that the program knows.
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
