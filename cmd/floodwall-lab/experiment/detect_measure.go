// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/traffic"
	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/lab"
)

// at runs fn at a new site while the usual mix is sent. The parameter state is the directory with which the daemon starts, or "".
func (d *detection) at(ctx context.Context, c *detectCase, state string, seed uint64, fn func(context.Context, *detectSite) error) error {
	return rig.InLab(ctx, func(l *lab.Lab) (err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := newDetectSite(l, c.alone)
		if err != nil {
			return err
		}
		defer s.closeServices()
		if c.protected {
			if err := s.answerable(); err != nil {
				return err
			}
		}
		dir, err := os.MkdirTemp(d.dir, "")
		if err != nil {
			return err
		}
		if s.product, err = newProduct(s.server, d.program, dir); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.product.close()) }()
		if state != "" {
			if err := os.CopyFS(s.state(), os.DirFS(state)); err != nil {
				return err
			}
		}
		if err := s.apply(ctx, c.policy()); err != nil {
			return err
		}
		// The receive thread exists only with the program that apply has attached.
		for _, d := range []*lab.Device{s.honest, s.clients} {
			if err := d.Segments(); err != nil {
				return err
			}
		}
		s.classes = slices.Concat(c.Classes(), c.classes, traffic.UsualClasses())
		if err := s.countClasses(ctx); err != nil {
			return err
		}
		if err := s.watch(ctx); err != nil {
			return err
		}
		s.tcp = &tcpTraffic{ctx: ctx, host: s.clients.Host, seed: seed}
		defer s.tcp.running.Wait()
		defer cancel()
		s.tcp.usual(c.usual(0))
		return fn(ctx, s)
	})
}

// learn returns a directory with the state of a daemon that has learned a multiple of the usual mix.
func (d *detection) learn(ctx context.Context, times float64) (state string, err error) {
	if state = d.learned[times]; state != "" {
		return state, nil
	}
	if state, err = os.MkdirTemp(d.dir, ""); err != nil {
		return "", err
	}
	always := func(time.Duration) float64 { return times }
	err = d.at(ctx, &detectCase{Model: &traffic.Model{}, usual: always}, "", d.Seed, func(ctx context.Context, s *detectSite) error {
		if _, err := d.sendUsual(ctx, s, always, time.Now(), report.Choice(d.Quick, quickLearn, learnTime)); err != nil {
			return err
		}
		if err := s.stop(); err != nil {
			return err
		}
		return os.CopyFS(state, os.DirFS(s.state()))
	})
	if err != nil {
		return "", err
	}
	d.learned[times] = state
	return state, nil
}

// sendUsual sends the usual mix for a time. Its clients are those that the daemon has learned.
func (d *detection) sendUsual(ctx context.Context, s *detectSite, times func(time.Duration) float64, began time.Time, lasts time.Duration) (traffic.Sent, error) {
	return traffic.Send(ctx, s.clients, traffic.Usual(times).Play(d.Seed), began, lasts)
}

// visit measures a case once. The seed is for the traffic in addition to the usual mix.
func (d *detection) visit(ctx context.Context, c *detectCase, seed uint64) (read rig.Reading, err error) {
	err = d.at(ctx, c, d.learned[c.learned], seed, func(ctx context.Context, s *detectSite) (err error) {
		start := func(time.Duration) float64 { return c.usual(0) }
		if _, err := d.sendUsual(ctx, s, start, time.Now(), report.Choice(d.Quick, quickTime, settleTime)); err != nil {
			return err
		}
		read, err = d.measure(ctx, s, c, seed, report.Choice(d.Quick, min(quickTime, c.Lasts), c.Lasts))
		return err
	})
	return read, err
}

// restTime is the time for which sent packets may still be on their way. countTime is the time that the daemon may take to count them.
const (
	restTime  = 300 * time.Millisecond
	countTime = 1500 * time.Millisecond
)

// laterTime is a time after the start of a case. The figures of the time after it show the effect of the daemon's rules, without the time in which
// the rules did not exist yet. An attack in a single pulse is over by then.
const laterTime = 5 * time.Second

// measure sends the traffic of the case for a time, in addition to the usual mix. Times in the reading count from the first packet of the attack, or
// of the unusual traffic. If an event never happens, the reading has no time for it.
func (d *detection) measure(ctx context.Context, s *detectSite, c *detectCase, seed uint64, lasts time.Duration) (rig.Reading, error) {
	var before, atLater, after detectCounts
	if err := before.read(ctx, s); err != nil {
		return nil, err
	}
	cpuBefore, _, err := s.used()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	watching, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	var dropped, named time.Duration
	looking.Go(func() { dropped = s.firstDrop(watching, &before, began) })
	looking.Go(func() { named = s.firstName(watching, began) })
	looking.Go(func() {
		if wait(watching, laterTime); watching.Err() == nil {
			_ = atLater.readDrivers(s) // if it fails, later is about the whole time
		}
	})
	usual, own, failed := d.send(ctx, s, c, seed, began, lasts)
	stop()
	looking.Wait()
	cpuAfter, memory, err := s.used()
	if err := errors.Join(failed, err); err != nil {
		return nil, err
	}
	lasted := time.Since(began)
	answered, unanswered := s.tcp.done.Load(), s.tcp.failed.Load()
	wait(ctx, restTime)
	if err := after.read(ctx, s); err != nil {
		return nil, err
	}
	honest, attacks := usual.By, own.Frames
	if c.Honest {
		attacks = 0
		for name, n := range own.By {
			honest[name] += n
		}
	}
	read := c.account(&before, &after, honest, attacks)
	if !c.Honest {
		var later lab.DriverCounts
		if lasts > laterTime {
			later = after.attack.Since(atLater.attack)
		}
		read["attack-dropped-later"] = float64(later.Refused()) / float64(max(1, later.Received))
	}
	read["packets/s"] = (read["honest-packets"] + float64(attacks)) / lasted.Seconds()
	read["requests"], read["failed-requests"], read["late-ns"] = float64(answered), float64(unanswered), float64(max(usual.Late, own.Late))
	read["daemon-cpu"], read["daemon-B"] = float64(cpuAfter-cpuBefore)/float64(lasted), float64(memory)
	came(read, "dropped-s", dropped)
	came(read, "named-s", named)
	if !own.First.IsZero() {
		began = own.First
	}
	wait(ctx, countTime)
	return read, s.judge(ctx, c, read, began)
}

// came adds the time of an event to a reading. It does nothing if the event never happened, or if the reading has an earlier time for it.
func came(read rig.Reading, unit string, at time.Duration) {
	if earlier, is := read[unit]; at > 0 && (!is || at.Seconds() < earlier) {
		read[unit] = at.Seconds()
	}
}

// send sends the usual mix and the traffic of the case.
func (d *detection) send(ctx context.Context, s *detectSite, c *detectCase, seed uint64, began time.Time, lasts time.Duration) (usual, own traffic.Sent, err error) {
	ctx, cancel := context.WithTimeout(ctx, lasts+restTime)
	defer cancel()
	var sending sync.WaitGroup
	errs := make([]error, 2)
	sending.Go(func() { usual, errs[0] = d.sendUsual(ctx, s, c.usual, began, lasts) })
	if c.tcp != nil {
		c.tcp(s.tcp)
	}
	sending.Go(func() {
		if c.kernel != nil {
			own, errs[1] = s.fast(ctx, c.kernel, seed, lasts)
			return
		}
		own, errs[1] = traffic.Send(ctx, report.Choice(c.Honest, s.clients, s.attacker), c.Play(seed), began, lasts)
	})
	sending.Wait()
	return usual, own, errors.Join(errs...)
}

// fastRate is the rate at which the kernel tries to send, in packets per second.
const fastRate = 1e6

// fast makes the kernel send an attack.
func (s *detectSite) fast(ctx context.Context, flows []lab.Flow, seed uint64, lasts time.Duration) (sent traffic.Sent, err error) {
	source, err := s.lab.NewSource(s.attacker, lab.SourceOptions{Flows: flows, Rate: fastRate, Duration: lasts, Batch: besideBatch, CPU: rig.SourceCPU, Seed: seed})
	if err != nil {
		return sent, err
	}
	sent.First = time.Now()
	err = source.Run(ctx)
	sent.Frames = source.Sent()
	return sent, errors.Join(err, source.Close())
}

// lookEvery is the interval at which the counters are read. askEvery is the interval of requests to the daemon.
const (
	lookEvery = 10 * time.Millisecond
	askEvery  = 250 * time.Millisecond
)

// firstDrop waits until XDP has dropped a packet on one of the links. It returns the time since began, or 0 if no packet was dropped.
func (s *detectSite) firstDrop(ctx context.Context, before *detectCounts, began time.Time) time.Duration {
	for ; ctx.Err() == nil; wait(ctx, lookEvery) {
		var now detectCounts
		if now.readDrivers(s) == nil && (now.attack.Refused() > before.attack.Refused() || now.honest.Dropped > before.honest.Dropped) {
			return time.Since(began)
		}
	}
	return 0
}

// firstName asks the daemon repeatedly until it has named the kind of an attack. It returns the time since began, or 0 if ctx ended before.
func (s *detectSite) firstName(ctx context.Context, began time.Time) time.Duration {
	for ; ctx.Err() == nil; wait(ctx, askEvery) {
		var list api.AttackList
		if s.get(ctx, "/v1/attacks", &list) == nil && len(list.Attacks) > 0 && len(list.Attacks[0].Vectors) > 0 {
			return time.Since(began)
		}
	}
	return 0
}

// judge adds the daemon's events and reports to a reading. It records the names of kinds and rules in the case.
func (s *detectSite) judge(ctx context.Context, c *detectCase, read rig.Reading, first time.Time) error {
	read["calls"], read["rules-dropped-packets"], c.kinds, c.rules = 0, 0, nil, nil
	for _, e := range s.told() {
		since, turn := max(e.Time.Sub(first), time.Millisecond), e.Data.(*attack.Turn)
		switch turn.State {
		case attack.Started:
			read["calls"]++
			came(read, "seen-s", since)
		case attack.Suggested:
			came(read, "suggested-s", since)
		}
		if len(turn.Attack.Vectors) > 0 {
			came(read, "named-s", since)
		}
	}
	var list api.AttackList
	if err := s.get(ctx, "/v1/attacks", &list); err != nil {
		return err
	}
	for _, a := range slices.Backward(list.Attacks) { // the earliest first
		var r attack.Report
		if err := s.get(ctx, "/v1/attacks/"+a.ID, &r); err != nil {
			return err
		}
		c.take(&r, read, first)
	}
	return nil
}

// take adds the data of a report to a reading. The reasons in a report count only packets that rules have dropped. They do not count the packets that
// a rule has matched before it dropped.
func (c *detectCase) take(r *attack.Report, read rig.Reading, first time.Time) {
	for _, k := range r.Vectors {
		if !slices.Contains(c.kinds, k.Name) {
			c.kinds = append(c.kinds, k.Name)
		}
	}
	if r.Suggestion != nil {
		for _, rule := range r.Suggestion.Rules {
			c.rules = append(c.rules, "suggested: "+rule.Text)
		}
	}
	for _, step := range r.Steps {
		c.rules = append(c.rules, fmt.Sprintf("%s %s after %.1f s: %s", step.Rule, step.Did, step.Time.Sub(first).Seconds(), step.Why))
	}
	for _, reason := range r.Reasons {
		if strings.HasPrefix(reason.Name, "auto-") && reason.Verdict == "drop" {
			read["rules-dropped-packets"] += float64(reason.Packets)
		}
	}
}

// account computes from the counters how many packets were sent, dropped and lost. The parameter honest has the number of packets of each class that
// this process sent. The parameter attacks is the number of packets of the attack. Lost packets are packets that did not reach XDP.
func (c *detectCase) account(before, after *detectCounts, honest map[string]uint64, attacks uint64) rig.Reading {
	wires, attacked := after.honest.Since(before.honest), after.attack.Since(before.attack)
	sent, missing := maps.Clone(after.sent), map[string]uint64{}
	for name := range sent {
		sent[name] -= before.sent[name]
	}
	for name, n := range honest {
		sent[name] += n
	}
	all, allMissing := uint64(0), uint64(0)
	for name, n := range sent {
		missing[name] = n - min(n, after.passed[name]-before.passed[name])
		all, allMissing = all+n, allMissing+missing[name]
	}
	// The shares are relative to the packets that reached XDP.
	share := func(dropped, sent, lost uint64) float64 { return float64(dropped) / float64(max(1, sent-lost)) }
	lost := allMissing - min(allMissing, wires.Dropped)
	read := rig.Reading{
		"honest-packets": float64(all), "honest-lost-packets": float64(lost), "honest-dropped": share(wires.Dropped, all, lost),
		"xdp-dropped-packets": float64(attacked.Refused() + wires.Dropped), "answers": float64(after.answers - before.answers),
	}
	if !c.Honest {
		lost := attacks - min(attacks, attacked.Received)
		read["attack-packets"], read["attack-lost-packets"], read["attack-dropped"] = float64(attacks), float64(lost), share(attacked.Refused(), attacks, lost)
	}
	// The worst class is the class of which rules dropped the largest share of packets. The packets that a queue lost are not known for each class.
	// They are subtracted in proportion.
	worst := 0.0
	c.worst = ""
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		by := float64(missing[name]) / float64(max(1, sent[name])) * float64(wires.Dropped) / float64(max(1, allMissing))
		if by = min(1, by); by > worst {
			worst, c.worst = by, fmt.Sprintf("%s %.2f%%", name, 100*by)
		}
	}
	read["worst-class-dropped"] = worst
	return read
}

// countClasses starts to count the packets of each class on both sides of the firewall. In front of the firewall, it counts the packets that real
// sockets of the clients' host send. Packets that this process sends itself do not pass this counter. They are counted where they are sent. Behind
// the firewall, it counts the packets that XDP passed on the server's link to the honest clients. A packet is counted for the first class that
// matches it.
func (s *detectSite) countClasses(ctx context.Context) error {
	for host, rules := range map[*lab.Host]string{
		s.clients.Host: classRules(s.classes, "type filter hook output priority 0;") + answersRules,
		s.server:       classRules(s.classes, fmt.Sprintf("type filter hook prerouting priority -400; iifname != %q accept", honestWire)),
	} {
		if _, _, err := rig.RunTool(ctx, host, strings.NewReader(rules), "nft", "-f", "-"); err != nil {
			return err
		}
	}
	return nil
}

// answersRules count and drop the server's answers over UDP. The UDP clients have no sockets, so without these rules their host would send ICMP
// errors to the server.
const answersRules = `table ip answers {
	counter answers { }
	chain come { type filter hook prerouting priority 0; ip protocol udp counter name answers drop; }
}
`

// classRules returns the rules of a host that count the packets of each class.
func classRules(classes []traffic.Class, hook string) string {
	var counters, rules strings.Builder
	for i, class := range classes {
		proto := map[lab.Proto]string{lab.UDP: "udp", lab.TCP: "tcp"}[class.Proto]
		test := "ip protocol " + proto
		if class.Port > 0 {
			test = fmt.Sprintf("%s dport %d", proto, class.Port)
		}
		fmt.Fprintf(&counters, "\tcounter c%d { }\n", i)
		fmt.Fprintf(&rules, "\t\tip saddr %s %s counter name c%d accept\n", class.From, test, i)
	}
	return fmt.Sprintf("table ip lab {\n%s\tchain classes {\n\t\t%s\n%s\t}\n}\n", counters.String(), hook, rules.String())
}

// detectCounts has the counters of both sides of the firewall.
type detectCounts struct {
	sent, passed   map[string]uint64 // packets of each class, by its name
	answers        uint64            // the server's answers over UDP
	honest, attack lab.DriverCounts  // counters of the server's links
}

// read reads all counters. It reads the counters of sent packets first. So a packet that is on its way does not count as lost.
func (n *detectCounts) read(ctx context.Context, s *detectSite) (err error) {
	if n.sent, n.answers, err = s.readClasses(ctx, s.clients.Host); err != nil {
		return err
	}
	if n.passed, _, err = s.readClasses(ctx, s.server); err != nil {
		return err
	}
	return n.readDrivers(s)
}

// readDrivers reads the counters of the links' drivers.
func (n *detectCounts) readDrivers(s *detectSite) (err error) {
	if n.honest, err = s.honest.DriverCounts(); err == nil {
		n.attack, err = s.attack.DriverCounts()
	}
	return err
}

// readClasses reads the counters of the classes on a host.
func (s *detectSite) readClasses(ctx context.Context, h *lab.Host) (counts map[string]uint64, answers uint64, err error) {
	text, _, err := rig.RunTool(ctx, h, nil, "nft", "-j", "list", "counters")
	if err != nil {
		return nil, 0, err
	}
	var list struct {
		All []struct {
			Counter struct {
				Name    string `json:"name"`
				Packets uint64 `json:"packets"`
			} `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, 0, fmt.Errorf("counters of nft: %w", err)
	}
	counts = map[string]uint64{}
	for _, item := range list.All {
		var i int
		if _, err := fmt.Sscanf(item.Counter.Name, "c%d", &i); err == nil && i < len(s.classes) {
			counts[s.classes[i].Name] += item.Counter.Packets // several classes may have the same name
		}
		if item.Counter.Name == "answers" {
			answers = item.Counter.Packets
		}
	}
	return counts, answers, nil
}
