// Package program is the experiment of that name: nanoseconds of the loaded program per kind of packet.
package program

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/floodwall/floodwall/internal/bench/lists"
	"github.com/floodwall/floodwall/internal/bench/report"
	"github.com/floodwall/floodwall/internal/bench/rig"
	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/lab"
)

// The sources that the policies of `program` know.
var (
	listedSource = netip.MustParseAddr("1.2.3.4")
	bannedSource = netip.MustParseAddr("5.6.7.8")
)

// packetKinds are what is given to the loaded programs. No rule but those about the two sources matches.
var packetKinds = [...]struct{ name, label, line string }{
	{"udp4", "UDP", "udp 9.9.9.9:4000 > 10.0.0.2:53 len=46"},
	{"udp6", "UDP, IPv6", "udp [2400::9]:4000 > [fd00::2]:53 len=60"},
	{"syn", "TCP SYN with options", "tcp 9.9.9.9:40000 > 10.0.0.2:80 S tcpopts=mss:1460,sack,ts,nop,ws:7"},
	{"ack", "TCP ACK", "tcp 9.9.9.9:40000 > 10.0.0.2:80 . seq=1000 ack=1000"},
	{"echo", "ICMP echo request", "icmp 9.9.9.9 > 10.0.0.2 echo-request len=84"},
	{"vlan", "UDP with a VLAN tag", "udp 9.9.9.9:4000 > 10.0.0.2:53 len=46 vlan=10"},
	{"fragment", "UDP, a later fragment", "udp 9.9.9.9:4000 > 10.0.0.2:53 len=1500 frag=1480"},
	{"ext6", "UDP, IPv6 with extension headers", "udp [2400::9]:4000 > [fd00::2]:53 ext=hbh,dst"},
	{"arp", "not IP (ARP)", "arp 9.9.9.9 > 10.0.0.2"},
	{"listed", "UDP, a listed source", "udp 1.2.3.4:4000 > 10.0.0.2:53 len=46"},
	{"banned", "UDP, a banned source", "udp 5.6.7.8:4000 > 10.0.0.2:53 len=46"},
}

// column is a program to run.
type column struct {
	name, head string
	text       string // of its policy; "" for the empty program
	program    *ebpf.Program
	figures    [len(packetKinds)]report.Samples // nanoseconds
	shares     [len(packetKinds)]report.Samples // the yardstick's nanoseconds in the same moments, by these
}

// Run measures loaded programs by BPF_PROG_TEST_RUN: what they cost when the packet is in the cache.
func Run(ctx context.Context, s *rig.Session) error {
	tables := []struct {
		title   string
		columns []*column
	}{
		{"program: nanoseconds a packet, by checks", checksColumns()},
		{"program: nanoseconds a packet, by rules that do not match; checks: standard", rulesColumns()},
	}
	return rig.InLab(ctx, func(l *lab.Lab) error {
		at, err := rig.NewSite(l, 0)
		if err != nil {
			return err
		}
		if s.Outcome.Yardstick, err = yardstickTag(); err != nil {
			return err
		}
		for _, t := range tables {
			if err := columns(ctx, s, at, t.title, t.columns); err != nil {
				return err
			}
		}
		return nil
	})
}

func checksColumns() []*column {
	columns := []*column{{name: "empty", head: "empty"}}
	for _, profile := range []string{"off", "standard", "strict"} {
		columns = append(columns, &column{
			name: "checks=" + profile, head: profile, text: policy(profile, 0),
		})
	}
	return columns
}

func rulesColumns() []*column {
	columns := []*column{{name: "empty", head: "empty"}}
	for _, c := range lists.RuleCounts {
		columns = append(columns, &column{
			name: fmt.Sprintf("rules=%d", c.Rules), head: report.CountText(c.Rules), text: policy("standard", c.Rules),
		})
	}
	return columns
}

// policy is one with a list of one address, room for bans, and n other rules.
func policy(checks string, n int) string {
	rules := "rules:\n" + strings.TrimPrefix(lists.PolicyRules(n), "rules:\n")
	return "default: drop\nchecks: " + checks + "\n" +
		"sets: {listed: [" + listedSource.String() + "], bans: {dynamic: true, max: 100000}}\n" +
		rules + "  - {name: listed, from: [$listed, $bans], then: drop}\n"
}

// columns measures the programs of a table and publishes.
func columns(ctx context.Context, s *rig.Session, at *rig.Site, title string, columns []*column) error {
	err := runColumns(ctx, s, at, columns)
	s.Outcome.Tables = append(s.Outcome.Tables, columnsTable(s, title, columns))
	return err
}

func closeColumns(columns []*column) {
	for _, c := range columns {
		if c.program != nil {
			c.program.Close()
			c.program = nil
		}
	}
}

// resultName is the column's part of the names of results: Floodwall's have its name.
func (c *column) resultName() string { return report.Choice(c.text == "", "", "floodwall/") + c.name }

// load gets the column's program into the kernel.
func (c *column) load(ctx context.Context, at *rig.Site) (err error) {
	if c.text == "" {
		c.program, err = rig.LoadInstructions("empty", asm.Mov.Imm(asm.R0, rig.XDPDrop), asm.Return())
		return err
	}
	a, err := at.Apply(ctx, c.text, ban)
	if err == nil {
		c.program = a.Program
	}
	return err
}

// ban bans the banned source, and sees to it that the program knows.
func ban(ctx context.Context, in control.Instance) error {
	p := netip.PrefixFrom(bannedSource, bannedSource.BitLen())
	if _, err := in.Block(ctx, "bans", []control.Ban{{Prefix: p, For: control.Forever}}); err != nil {
		return err
	}
	return rig.Expect(map[string]string{
		rig.FloodPacket(bannedSource): "listed", rig.FloodPacket(listedSource): "listed",
		rig.FloodPacket(lists.Addr4(0x09090909)): "default",
	})(ctx, in)
}
