package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
)

// Experiment is something that can be measured by its name.
type Experiment struct {
	Name string
	Doc  string // one line, for help
	run  func(context.Context, *session) error
}

// Experiments are all there are, in the order in which they run.
var Experiments = []Experiment{
	{"drop", "packets per second dropped by 0 to 10,000 rules that do not match, with nft and iptables beside", drop},
	{"sets", "1,000 to 10 million listed addresses, with ipset, nft sets and plain BPF maps beside", sets},
	{"blocklist", "a web server behind up to 10 million blocked addresses, with iptables rules, ipset and nft beside, by an article of 2012", blocklist},
	{"cost", "what one packet costs, by an article of 2016: accepted, dropped, by position, set, string, limit", packetCost},
	{"limit", "limits of packets per second by source, what they cost and let through, with hashlimit, nft and a BPF map beside", limit},
	{"payload", "texts and octets looked for in packets, with iptables string and u32 and nft raw payload beside", payload},
	{"placement", "a router with a full table that drops packets at XDP, in raw or in filter, and where placement has it do so", placement},
	{"conntrack", "a web server whose conntrack table is full, and what helps, by an article of 2023", conntrack},
	{"dns", "a resolver and its clients under a flood of spoofed ANY queries, with unbound's own limits beside", dns},
	{"synproxy", "a web server under floods of SYNs and ACKs, with syncookies and SYNPROXY beside, by a talk of 2021", synproxy},
	{"program", "nanoseconds of the loaded program per kind of packet, without a network", program},
}

// Options are the choices of a run. The zero value is good.
type Options struct {
	Rounds   int           // each row is measured so many times, in turn with the others; 0: 5, or 2 with Quick
	Window   time.Duration // of one measurement; 0: 500 ms, or 100 ms with Quick
	Phase    time.Duration // of requests to a server; 0: 10 s, or 3 s with Quick. Below that, blocklist makes fewer requests.
	Quick    bool          // small sizes, short windows: whether it works, not how fast it is
	All      bool          // also what takes minutes: the slow tools with 10 million addresses
	Sizes    []int         // of random address lists, for sets and blocklist; nil: each has its own
	Routes   int           // of the router of placement; 0: 925,525, as in the article
	List     string        // a file of addresses for both to measure with, in place of random ones
	Progress io.Writer     // where to show a line of progress, if it is a terminal; nil: nowhere
}

// session is one experiment of a run.
type session struct {
	Options
	outcome  *Outcome
	progress *progress
}

// every is the name that stands for all experiments.
const every = "all"

// Unknown returns the first of these names that no experiment has and that is not "all"; "" when there is none.
func Unknown(names []string) string {
	for _, name := range names {
		if name != every && !slices.ContainsFunc(Experiments, func(e Experiment) bool { return e.Name == name }) {
			return name
		}
	}
	return ""
}

// MaxSize is the largest number of random addresses in a list: there must be others left that are not listed.
const MaxSize = 2_000_000_000

// MaxRoutes is the largest number of routes: there must be others left to draw.
const MaxRoutes = 4_000_000

// Run runs the named experiments, or all when none or "all" is named, in their own order. One that cannot go on does not
// keep the others from running. Unless nothing could be begun, the report holds what was measured, also together with an
// error: that of ctx, when it ended, or of the experiments that failed.
func Run(ctx context.Context, names []string, o Options) (*Report, error) {
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
	r := &Report{Time: time.Now().UTC().Truncate(time.Second), Machine: machine, Quick: o.Quick}
	return r, r.run(ctx, chosen(names), o.withDefaults())
}

// chosen is the experiments of these names.
func chosen(names []string) []Experiment {
	if len(names) == 0 || slices.Contains(names, every) {
		return Experiments
	}
	return slices.DeleteFunc(slices.Clone(Experiments), func(e Experiment) bool { return !slices.Contains(names, e.Name) })
}

// run adds the outcome of each experiment to the report.
func (r *Report) run(ctx context.Context, experiments []Experiment, o Options) error {
	p := newProgress(o.Progress, newOutlook(experiments, o))
	defer p.end()
	for i, e := range experiments {
		p.begin()
		start := time.Now()
		outcome := &Outcome{Name: e.Name, Doc: e.Doc, Results: []lab.Result{}, Bars: []*Bar{}, Tables: []*Table{}}
		r.Experiments = append(r.Experiments, outcome)
		err := e.run(ctx, &session{Options: o, outcome: outcome, progress: p})
		outcome.keepFinite()
		outcome.Seconds = time.Since(start).Seconds()
		if ctx.Err() != nil {
			r.stop(outcome, experiments[i+1:])
			return ctx.Err()
		}
		if err != nil {
			outcome.Error = err.Error()
		}
	}
	return r.failures()
}

// stop notes which experiments have not ended.
func (r *Report) stop(current *Outcome, others []Experiment) {
	current.Error = "the run was stopped"
	for _, e := range others {
		r.NotRun = append(r.NotRun, e.Name)
	}
}

// failures is an error about the experiments that could not go on; nil when all could.
func (r *Report) failures() error {
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

func (o Options) withDefaults() Options {
	rounds, window, phase := 5, 500*time.Millisecond, 10*time.Second
	if o.Quick {
		rounds, window, phase = 2, 100*time.Millisecond, 3*time.Second
	}
	if o.Rounds == 0 {
		o.Rounds = rounds
	}
	if o.Window == 0 {
		o.Window = window
	}
	if o.Phase == 0 {
		o.Phase = phase
	}
	if o.Routes == 0 {
		o.Routes = articleRoutes
	}
	return o
}

// fewerRounds is the rounds of what is of less weight than the rest: all, or half of them with Quick.
func (o Options) fewerRounds() int {
	if o.Quick {
		return (o.Rounds + 1) / 2
	}
	return o.Rounds
}

// inLab runs fn with an empty lab, which ends with it.
func inLab(ctx context.Context, fn func(*lab.Lab) error) (err error) {
	l, err := lab.New(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return fn(l)
}
