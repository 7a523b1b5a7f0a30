// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
)

// Experiment is a measurement with a name.
type Experiment struct {
	Name string
	Doc  string // one line, for help
	run  func(context.Context, *rig.Session) error
}

// Experiments are all experiments, in the order in which they run.
var Experiments = []Experiment{
	{"drop", "packets per second dropped by 0 to 10,000 rules that do not match, with nft and iptables beside", runDrop},
	{"sets", "1,000 to 10 million listed addresses, with ipset, nft sets and plain BPF maps beside", runSets},
	{"exchange", "how long a list of up to 10 million that is exchanged or taken away stalls CPUs, with BPF maps beside", runExchange},
	{"blocklist", "a web server behind up to 10 million blocked addresses, with iptables rules, ipset and nft beside, by an article of 2012", runBlocklist},
	{"cost", "what one packet costs, by an article of 2016: accepted, dropped, by position, set, string, limit", runPacketCost},
	{"pass", "what a packet costs that passes, and a download and requests of a host, with nft, iptables and a flowtable beside", runPass},
	{"calm", "bulk and requests of a host until a flood begins, as it begins, beside it and after it, with `xdp: flooded`, nft and XDP beside", runCalm},
	{"limit", "limits of packets per second by source, what they cost and let through, with hashlimit, nft and a BPF map beside", runLimit},
	{"payload", "texts and bytes looked for in packets, with iptables string and u32 and nft raw payload beside", runPayload},
	{"placement", "a router with a full table that drops packets at XDP, in raw or in filter, and where placement has it do so", runPlacement},
	{"conntrack", "a web server whose conntrack table is full, and what helps, by an article of 2023", runConntrack},
	{"dns", "a resolver and its clients under floods of spoofed ANY queries and of random names, with unbound's own limits beside", runDNS},
	{"udp", "a UDP service and its clients under a flood of datagrams of its own kind, with nft and hashlimit beside", runUDP},
	{"detect", "the daemon's detection of attacks: how soon, what it does by itself, and what honest traffic suffers", runDetect},
	{"synproxy", "a web server under floods of SYNs and ACKs, with syncookies and SYNPROXY beside, by a talk of 2021", runSynproxy},
	{"scale", "one to all CPUs at a time, each with a receive queue of its own: drop, limit, SYN cookies", runScale},
	{"program", "nanoseconds of the loaded program per kind of packet, without a network", runProgram},
}

// Options are the choices of a run. The zero value is good.
type Options = rig.Options

// The maximum values of options.
const (
	MaxSize   = rig.MaxSize
	MaxRoutes = rig.MaxRoutes
)

// every is the name that stands for all experiments.
const every = "all"

// Unknown returns the first name that is neither that of an experiment nor "all". It returns "" if there is none.
func Unknown(names []string) string {
	for _, name := range names {
		if name != every && !slices.ContainsFunc(Experiments, func(e Experiment) bool { return e.Name == name }) {
			return name
		}
	}
	return ""
}

// Run runs the named experiments in the order of Experiments. It runs all of them if names is empty or contains "all". If an experiment fails, the
// others still run. The report has everything that was measured, even if Run also returns an error. The report is nil only if no experiment could
// start. The error is that of ctx if ctx ended. Otherwise it names the experiments that failed.
func Run(ctx context.Context, names []string, o rig.Options) (*report.Report, error) {
	if unknown := Unknown(names); unknown != "" {
		return nil, fmt.Errorf("unknown experiment %q", unknown)
	}
	if runtime.NumCPU() < 2 {
		return nil, errors.New("the bench needs two CPUs: one sends, another receives")
	}
	machine, err := lab.DescribeMachine()
	if err != nil {
		return nil, err
	}
	r := &report.Report{Time: time.Now().UTC().Truncate(time.Second), Machine: machine, Quick: o.Quick}
	return r, run(ctx, r, chosen(names), o.WithDefaults())
}

// chosen returns the experiments with the given names.
func chosen(names []string) []Experiment {
	if len(names) == 0 || slices.Contains(names, every) {
		return Experiments
	}
	return slices.DeleteFunc(slices.Clone(Experiments), func(e Experiment) bool { return !slices.Contains(names, e.Name) })
}

// names returns the names of experiments.
func names(experiments []Experiment) (all []string) {
	for _, e := range experiments {
		all = append(all, e.Name)
	}
	return all
}

// run runs experiments, and adds the outcome of each to the report.
func run(ctx context.Context, r *report.Report, experiments []Experiment, o rig.Options) error {
	p := rig.NewProgress(o.Progress, names(experiments), o)
	defer p.End()
	for i, e := range experiments {
		p.Begin()
		start := time.Now()
		outcome := &report.Outcome{Name: e.Name, Doc: e.Doc, Results: []lab.Result{}, Bars: []*report.Bar{}, Tables: []*report.Table{}}
		r.Experiments = append(r.Experiments, outcome)
		err := e.run(ctx, &rig.Session{Options: o, Outcome: outcome, Steps: p})
		outcome.KeepFinite()
		outcome.Seconds = time.Since(start).Seconds()
		if ctx.Err() != nil {
			stop(r, outcome, experiments[i+1:])
			return ctx.Err()
		}
		if err != nil {
			outcome.Error = err.Error()
		}
	}
	return failures(r)
}

// stop records that the current experiment was stopped, and that the others did not run.
func stop(r *report.Report, current *report.Outcome, others []Experiment) {
	current.Error = "the run was stopped"
	for _, e := range others {
		r.NotRun = append(r.NotRun, e.Name)
	}
}

// failures returns an error that names the experiments that failed, or nil if none failed.
func failures(r *report.Report) error {
	failed := r.Failed()
	if len(failed) == 0 {
		return nil
	}
	err := fmt.Errorf("experiment %s: %s", failed[0].Name, failed[0].Error)
	if len(failed) > 1 {
		err = fmt.Errorf("%d of %d experiments failed, the first: %w", len(failed), len(r.Experiments), err)
	}
	return err
}
