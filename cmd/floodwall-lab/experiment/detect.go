// SPDX-License-Identifier: Apache-2.0

// This file is the experiment detect. It measures how soon the daemon detects an attack, what the daemon does, and how much honest traffic is lost.

package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/traffic"
	"github.com/floodwall/floodwall/internal/lab"
)

// runDetect measures the daemon with `detect: {auto: …}` from outside. First the daemon learns a host's usual mix of traffic. Then attacks, or
// unusual honest traffic, arrive in addition to this mix.
func runDetect(ctx context.Context, s *rig.Session) (err error) {
	d := &detection{Builder: &rig.Builder{Session: s}, learned: map[float64]string{}}
	defer d.Close()
	if d.program, err = d.Find("floodwall"); err != nil {
		return err
	}
	if d.dir, err = d.TempDir(); err != nil {
		return err
	}
	return s.Run(ctx, d.table(detectCases()))
}

// detection has the parts that all cases share.
type detection struct {
	*rig.Builder
	program string
	dir     string             // directory for files
	learned map[float64]string // directories with the state of a daemon that has learned a multiple of the usual mix
}

// detectCase is a row.
type detectCase struct {
	*traffic.Model
	usual     func(t time.Duration) float64 // multiple of the usual mix's rate over time
	learned   float64                       // multiple of that rate while the daemon learned; 0: 1
	tcp       func(t *tcpTraffic)           // more traffic over real sockets
	classes   []traffic.Class               // of that traffic
	kernel    []lab.Flow                    // flows that the kernel sends in place of the model's streams, as fast as possible
	alone     bool                          // no other case may run at the same time
	protected bool                          // the web server has syn: protect

	kinds, rules []string // of attacks that the daemon named, and rules that it suggested and added, in the last round
	worst        string   // the class of honest packets that lost the largest share in the last round; "" if no class lost any
}

func (c *detectCase) name() string {
	if c.Honest {
		return "honest/" + c.Name
	}
	return "attack/" + c.Name
}

// prepare reads the recorded packets of a case, and makes a daemon learn the usual mix of the case.
func (d *detection) prepare(ctx context.Context, c *detectCase) error {
	if c.Rate > 0 {
		err := fmt.Errorf("its packets: %w: --captures or FLOODWALL_TRACES names their directory", fs.ErrNotExist)
		if d.Captures != "" {
			err = c.Read(d.Captures)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &rig.Missing{Reason: err.Error()}
		case err != nil:
			return err
		}
	}
	if _, err := d.learn(ctx, c.learned); err != nil {
		return fmt.Errorf("learning: %w", err)
	}
	return nil
}

// Times of a visit. The daemon regards a sample as legitimate 30 s after it was taken, and stores 5,000 such samples.
const (
	learnTime  = 66 * time.Second
	settleTime = 4 * time.Second // of the usual mix before the traffic of the case
	quickLearn = time.Second
	quickTime  = time.Second // of an attack with Quick
)

// detectPolicy has no rule that drops packets. So XDP drops packets only by rules that the daemon has added.
const detectPolicy = `devices: [` + honestWire + ", " + attackWire + `]
default: pass
checks: off
detect: {baseline: learn, auto: {max: 3}}
services:
  - {name: web, port: [tcp/80, tcp/443]}
  - {name: ssh, port: tcp/22}
  - {name: dns, port: udp/53}
  - {name: game, port: udp/27015}
  - {name: voice, port: udp/9987}
  - {name: small, port: udp/5000}
`

// policy returns the policy of the host in a case.
func (c *detectCase) policy() string {
	if c.protected {
		return strings.Replace(detectPolicy, "port: [tcp/80, tcp/443]", "port: [tcp/80, tcp/443], syn: protect", 1)
	}
	return detectPolicy
}

// mostHonest is the maximum share of honest packets that the daemon's rules may drop. The other figures have no goal, so the reader must judge them.
const mostHonest = 0.001

// mostLate is the maximum delay with which a packet may be sent. If a delay exceeds it, the round was disturbed.
const mostLate = 500 * time.Millisecond

// notes returns texts that describe the choices of the experiment.
func (d *detection) notes() []string {
	return []string{
		"The usual mix, some 1,500 packets a second to six services, comes all the time. The daemon has learned it before, for",
		fmt.Sprintf("%v; each case begins with what it knew then. It chooses itself how many packets are samples. Attacks send %s", learnTime, report.CountText(traffic.AttackRate)),
		"packets a second unless they say otherwise. Times are from the first packet of a case until the daemon says that there is an",
		"attack, until it names a kind, until it suggests a rule, and until XDP drops a packet. Without checks, and with `default: pass`,",
		"nothing but the rules that the daemon adds by itself drops: packets of the attack, and honest ones, are those that XDP has dropped",
		"on the wire of each (the driver's own counters), or has answered with a cookie where a row has `syn: protect`. *After 5 s* is the share of what came later than that: of pulses, all but the first. What a full queue of a wire loses before XDP is none of them. The class is by nft",
		"counters past XDP, against what was sent, by addresses and ports; the worst class is named. Honest clients are answered by real",
		fmt.Sprintf("sockets. The daemon's CPU is a share of one, its memory the most that it had. Medians of %s; two cases run at a time.", report.Things(d.Rounds, "round", "rounds")),
	}
}

// table returns the rows, and defines how their figures are published. Two cases run at the same time, each with hosts of its own, because most of
// their time is waiting.
func (d *detection) table(cases []*detectCase) *rig.Table {
	of := map[*rig.Row]*detectCase{}
	t := &rig.Table{
		Title: "detect: attacks that the daemon sees, and honest traffic that it does not take for one",
		Results: []string{
			"calls", "seen-s", "named-s", "suggested-s", "dropped-s", "attack-dropped", "attack-dropped-later", "attack-packets", "attack-lost-packets",
			"honest-dropped", "worst-class-dropped", "honest-packets", "honest-lost-packets", "xdp-dropped-packets", "rules-dropped-packets", "answers",
			"requests", "failed-requests", "late-ns", "daemon-cpu", "daemon-B",
		},
		Columns: []rig.Column{
			{Head: "calls", Unit: "calls", Show: rig.Digits(0, 1)}, {Head: "seen s", Text: cameText("seen-s")}, {Head: "named s", Text: cameText("named-s")},
			{Head: "rule s", Text: cameText("suggested-s")}, {Head: "drops s", Text: cameText("dropped-s")},
			{Head: "attack dropped", Unit: "attack-dropped", Show: rig.Percent}, {Head: "after 5 s", Unit: "attack-dropped-later", Show: rig.Percent},
			{Head: "honest dropped", Unit: "honest-dropped", Show: rig.Percent},
			{Head: "worst class", Text: func(r *rig.Row) string { return of[r].worst }},
			{Head: "kpps", Unit: "packets/s", Show: rig.Digits(1, 1e3)}, {Head: "CPU", Unit: "daemon-cpu", Show: rig.Percent},
			{Head: "MB", Unit: "daemon-B", Show: rig.Digits(0, 1e6)},
		},
		Marks: []rig.Mark{{
			Sign: "~", Note: fmt.Sprintf("~ disturbed: a packet left more than %v late, since the machine did something else.", mostLate),
			On: func(r *rig.Row) bool { return r.Figure("late-ns").Longest() > float64(mostLate) },
		}},
		Notes: d.notes(), Lanes: 2,
	}
	for _, c := range cases {
		r := &rig.Row{
			Name: c.name(), Label: c.name() + ": " + c.Label, Stage: report.Choice(c.alone, 1, 0),
			Goals: []rig.Goal{{Unit: "honest-dropped", What: "honest-dropped", Bound: mostHonest, Most: true}},
			Setup: &rig.Setup{Label: c.Label, Do: func(ctx context.Context) error { return d.prepare(ctx, c) }},
			Take: func(ctx context.Context, round int) (rig.Reading, error) {
				return d.visit(ctx, c, d.Seed+uint64(round))
			},
		}
		of[r], t.Rows = c, append(t.Rows, r)
	}
	t.After = func(o *report.Outcome) {
		said := &report.Table{Title: "detect: what the daemon named, suggested and did, in the last round", Head: []string{""}}
		for _, r := range t.Rows {
			if len(r.Rounds) == 0 {
				continue
			}
			said.AddRow(r.Name + ": " + cmp.Or(strings.Join(of[r].kinds, ", "), "nothing"))
			for _, rule := range of[r].rules {
				said.AddRow("    " + rule)
			}
		}
		if len(t.Rows) > 0 {
			o.Tables = append(o.Tables, said)
		}
	}
	return t
}

// cameText returns a function that shows the median of a time. An event that never happened counts as later than all others.
func cameText(unit string) func(*rig.Row) string {
	return func(r *rig.Row) string {
		all := r.Figure(unit)
		for range len(r.Rounds) - len(all) {
			all = append(all, never)
		}
		switch m := all.Median(); {
		case len(all) == 0:
			return ""
		case m < never/2:
			return fmt.Sprintf("%.1f", m)
		}
		return "never"
	}
}

// never is a number of seconds that is larger than all others.
const never = 1e9

// detectCases returns the rows: unusual honest traffic, and attacks.
func detectCases() []*detectCase {
	list := honestCases()
	for _, m := range append(traffic.Attacks(), traffic.Recordings()...) {
		c := &detectCase{Model: m}
		if m.Name == "small" {
			c.learned = traffic.SmallTimes
			c.usual = func(time.Duration) float64 { return traffic.SmallTimes }
		}
		list = append(list, c)
		if slices.Contains([]string{"syn", "ack", "turns"}, m.Name) {
			guarded := *m
			guarded.Name, guarded.Label = m.Name+"-protected", m.Label+"; `syn: protect` as `init` writes it"
			list = append(list, &detectCase{Model: &guarded, protected: true})
		}
	}
	list = append(list, &detectCase{
		Model: &traffic.Model{Name: "fast", Label: "1 million answers of NTP servers a second", Lasts: 20 * time.Second},
		alone: true,
		kernel: []lab.Flow{{
			From: lab.MustAddrs("128.0.0.0/2"), To: lab.Addr(traffic.Host), SPort: lab.Port(123), DPort: lab.Port(traffic.Game),
			Payload: append([]byte("\xd7\x00\x03\x2a\x00\x06\x00\x48"), make([]byte, 100)...),
		}},
	})
	for _, c := range list {
		if c.usual == nil {
			c.usual = traffic.Once
		}
		c.learned = cmp.Or(c.learned, 1)
	}
	return list
}

// honestCases returns cases of honest traffic, which the host answers.
func honestCases() []*detectCase {
	model := func(name, label string) *traffic.Model {
		return &traffic.Model{Name: name, Label: label, Honest: true, Lasts: 20 * time.Second}
	}
	doubling := model("doubling", "the usual mix, which doubles every 20 s to eight times")
	doubling.Lasts = 65 * time.Second
	single := func(name string, port uint16, from ...string) (list []traffic.Class) {
		for _, a := range from {
			list = append(list, traffic.Class{Name: name, From: lab.ParseAddrs(a)[0], Proto: lab.TCP, Port: port})
		}
		return list
	}
	return []*detectCase{
		{Model: model("usual", "the usual mix alone")},
		{Model: traffic.Crowd()},
		{Model: traffic.World()},
		{Model: model("http", "a crowd of usual clients at the web server"), tcp: func(t *tcpTraffic) {
			t.browse(traffic.UsualClients, traffic.HTTP, 600)
			t.browse(traffic.UsualClients, traffic.HTTPS, 600)
		}},
		{Model: model("upload", "one client uploads a backup over one connection"), tcp: func(t *tcpTraffic) { t.upload(traffic.Uploader, traffic.SSH) },
			classes: single("upload", traffic.SSH, traffic.Uploader.String()+"/32")},
		{Model: model("download", "one client downloads a large file"), tcp: func(t *tcpTraffic) { t.download(traffic.Downloader, traffic.HTTPS) },
			classes: single("download", traffic.HTTPS, traffic.Downloader.String()+"/32")},
		{Model: traffic.Scan()},
		{Model: traffic.NAT()},
		{Model: model("cdn", "four addresses of a CDN with most of the traffic"), tcp: func(t *tcpTraffic) { t.fetch(traffic.CDN, traffic.HTTPS, 64, 15*time.Millisecond) },
			classes: single("cdn", traffic.HTTPS, traffic.CDN.String())},
		{Model: traffic.Polls(), tcp: func(t *tcpTraffic) {
			for _, port := range []uint16{traffic.HTTP, traffic.HTTPS, traffic.SSH} {
				t.poll(traffic.Monitor, port, 100)
			}
		}, classes: single("monitor tcp", 0, traffic.Monitor.String()+"/32")},
		{Model: traffic.Hour()},
		{Model: doubling, usual: traffic.Doubling},
	}
}
