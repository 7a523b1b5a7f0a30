// This file is the experiment of that name: how long a list that is exchanged, or taken away, keeps CPUs from other work.

package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runExchange measures, for lists of some sizes, the longest stalls of CPUs while a list is put in force, exchanged and taken away.
func runExchange(ctx context.Context, s *rig.Session) error {
	for _, prepare := range exchangeLists(s) {
		s.Steps.Show("making addresses")
		l, err := prepare()
		if err == nil {
			err = rig.InLab(ctx, func(in *lab.Lab) error { return measureExchange(ctx, s, in, l) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exchangeLists makes the lists to measure with, each when its turn comes: the largest need much memory.
func exchangeLists(s *rig.Session) (all []func() (*rig.List, error)) {
	if s.List != "" {
		return append(all, func() (*rig.List, error) { return rig.ReadList(s.List) })
	}
	sizes := report.Choice(s.Quick, []int{100_000}, []int{1_000_000, 10_000_000})
	if s.Sizes != nil {
		sizes = s.Sizes
	}
	for _, n := range sizes {
		all = append(all, func() (*rig.List, error) { return rig.RandomHosts(n), nil })
	}
	return all
}

// measureExchange makes the table of a list.
func measureExchange(ctx context.Context, s *rig.Session, in *lab.Lab, l *rig.List) error {
	b := &exchangeBuilder{Builder: rig.Builder{Session: s, Lab: in}, list: l}
	defer b.Close()
	if err := b.build(ctx); err != nil {
		return err
	}
	defer b.publish() // what there is, also when the rest cannot be measured
	err := b.measure(ctx)
	return errors.Join(err, b.stalls.Stop())
}

// What comes beside the exchange: packets of listed sources, and datagrams of a client, each of which is answered.
const (
	exchangeFlood = quickRate // the attacker sleeps between bursts: the work needs the same CPU
	exchangeRate  = 2_000
	exchangePort  = 7000
	// workCPU has what exchanges the list, and the attacker; otherCPU has the receive thread, the service and its client.
	workCPU  = rig.SourceCPU
	otherCPU = rig.ReceiverCPU
)

// freeTime is how long after a command the kernel may still free what it had: it does so after all CPUs have been seen elsewhere, by workers.
func freeTime(s *rig.Session) time.Duration {
	return report.Choice(s.Quick, 200*time.Millisecond, time.Second)
}

// exchangeBuilder makes the table.
type exchangeBuilder struct {
	rig.Builder
	list   *rig.List
	dir    string
	site   *rig.Site
	ours   *product
	stalls *lab.Stalls
	groups []*exchangeGroup
}

// build builds the site: an attacker and a client at one end of a wire, Floodwall and a service at the other.
func (b *exchangeBuilder) build(ctx context.Context) (err error) {
	program, err := b.Find("floodwall")
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "floodwall-bench-"); err != nil {
		return err
	}
	b.Owned = append(b.Owned, func() error { return os.RemoveAll(b.dir) })
	end := lab.EndOptions{CPU: lab.OnCPU(otherCPU), Urgent: true, Queue: true}
	client := end
	client.First = true
	if b.site, err = rig.ConnectSite(b.Lab, 0, client, end); err != nil {
		return err
	}
	for _, half := range []string{"0.0.0.0/1", "128.0.0.0/1"} {
		if err := b.site.Server.Route(netip.MustParsePrefix(half), b.site.Out.Addrs[0].Addr(), b.site.In); err != nil {
			return err
		}
	}
	stop, err := b.Lab.NewEchoProcess(b.site.Server, netip.AddrPortFrom(rig.Server4, exchangePort), otherCPU, lab.MoreUrgent)
	if err != nil {
		return err
	}
	b.Owned = append(b.Owned, stop)
	if b.ours, err = newProduct(b.site.Server, program, b.dir); err != nil {
		return err
	}
	b.Owned = append(b.Owned, b.ours.close)
	if err := b.ours.stay(workCPU); err != nil {
		return err
	}
	if err := b.writeLists(); err != nil {
		return err
	}
	b.stalls, err = b.site.Server.WatchStalls(ctx, workCPU, otherCPU)
	return err
}

// writeLists writes two editions of the list, the other one without a tenth of it, and a policy with each.
func (b *exchangeBuilder) writeLists() error {
	fewer := *b.list
	fewer.Prefixes = fewer.Prefixes[:len(fewer.Prefixes)-max(len(fewer.Prefixes)/10, 1)]
	for i, l := range []*rig.List{b.list, &fewer} {
		file := filepath.Join(b.dir, fmt.Sprintf("list%d.txt", i))
		if err := report.WriteFile(file, l.Write); err != nil {
			return err
		}
		text := fmt.Sprintf("devices: [%s]\ndefault: drop\nsets: {listed: {file: %s}}\nrules: [{name: listed, from: $listed, then: drop}]\n"+
			"services: [{name: game, port: udp/%d}]\n", b.site.In.Name, strconv.Quote(file), exchangePort)
		if err := os.WriteFile(b.policy(i), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// policy is the file of the policy with an edition of the list.
func (b *exchangeBuilder) policy(edition int) string {
	return filepath.Join(b.dir, fmt.Sprintf("policy%d.yaml", edition))
}

// measure takes all rounds, beside a flood.
func (b *exchangeBuilder) measure(ctx context.Context) error {
	b.groups = b.allGroups()
	b.Steps.Expect(b.Rounds * len(b.groups))
	source, err := b.Lab.NewSource(b.site.Out, lab.SourceOptions{
		Flows: []lab.Flow{rig.Flood(b.list.Listed)}, CPU: workCPU, Batch: besideBatch, Rate: exchangeFlood, Urgent: true,
	})
	if err != nil {
		return err
	}
	err = lab.Flooding(ctx, source, func(ctx context.Context) error {
		for round := range b.Rounds {
			for _, g := range b.groups {
				if g.missing == "" {
					b.Steps.Show("round %d of %d, %s", round+1, b.Rounds, g.label)
					if err := b.round(ctx, g); err != nil {
						return fmt.Errorf("%s: %w", g.label, err)
					}
				}
				b.Steps.Step()
			}
		}
		return nil
	})
	return errors.Join(err, source.Close())
}

// round takes the steps of a group. When one fails, the last takes away what there is.
func (b *exchangeBuilder) round(ctx context.Context, g *exchangeGroup) error {
	for _, step := range g.steps {
		if err := b.visit(ctx, step.row, g.holders, step.work); err != nil {
			_ = g.steps[len(g.steps)-1].work(context.WithoutCancel(ctx)) // the first error is the one that says something
			return fmt.Errorf("%s: %w", step.row.label, err)
		}
	}
	return nil
}

// visit does some work, and adds what stalled until the kernel has settled. The names of the threads that do it begin with holders.
func (b *exchangeBuilder) visit(ctx context.Context, r *exchangeRow, holders []string, work func(context.Context) error) error {
	from, err := lab.Now()
	if err != nil {
		return err
	}
	talking, stop := context.WithCancel(ctx)
	defer stop()
	v := exchangeVisit{}
	talked := make(chan error, 1)
	go func() {
		var err error
		v.talk, err = b.talk(talking, r.usual(freeTime(b.Session)))
		talked <- err
	}()
	start := time.Now()
	if err := work(ctx); err != nil {
		stop()
		return errors.Join(err, notStopped(<-talked))
	}
	took := time.Since(start)
	wait(ctx, freeTime(b.Session))
	to, err := lab.Now()
	if err = errors.Join(err, <-talked, ctx.Err()); err != nil {
		return err
	}
	v.took = took
	for _, s := range b.stalls.Between(from, to) {
		v.add(s, holders)
	}
	r.visits = append(r.visits, v)
	return nil
}

// notStopped is an error, unless it says no more than that something was stopped.
func notStopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// talk has a client send datagrams for some time.
func (b *exchangeBuilder) talk(ctx context.Context, lasts time.Duration) (lab.TalkSummary, error) {
	return lab.Talk(ctx, lab.TalkOptions{
		Host: b.site.Out.Host, Server: netip.AddrPortFrom(rig.Server4, exchangePort), From: []netip.Addr{b.site.Out.Addrs[0].Addr()}, Clients: 1,
		Port: firstClient, Payload: make([]byte, lab.TalkStamp), Rate: exchangeRate, Duration: lasts, Timeout: udpTimeout, CPU: otherCPU, Urgent: true,
	})
}

// onWorkCPU does something on a thread of the work's CPU, which ends with it.
func onWorkCPU(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its CPU, ends with the goroutine
		if err := lab.Place(workCPU, lab.Ordinary); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// ownName is what the kernel calls this process.
func ownName() string {
	name, _ := os.ReadFile("/proc/self/comm") // there is one
	return strings.TrimSpace(string(name))
}
