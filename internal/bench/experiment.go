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
	{"cost", "what one packet costs, by an article of 2016: accepted, dropped, by position, set, string, limit", packetCost},
	{"limit", "limits of packets per second by source, what they cost and let through, with hashlimit, nft and a BPF map beside", limit},
	{"payload", "texts and octets looked for in packets, with iptables string and u32 and nft raw payload beside", payload},
	{"conntrack", "a web server whose conntrack table is full, and what helps, by an article of 2023", conntrack},
	{"dns", "a resolver and its clients under a flood of spoofed ANY queries, with unbound's own limits beside", dns},
	{"synproxy", "a web server under floods of SYNs and ACKs, with syncookies and SYNPROXY beside, by a talk of 2021", synproxy},
	{"program", "nanoseconds of the loaded program per kind of packet, without a network", program},
}

// Options are the choices of a run. The zero value is good.
type Options struct {
	Rounds   int           // each row is measured so many times, in turn with the others; 0: 5, or 2 with Quick
	Window   time.Duration // of one measurement; 0: 500 ms, or 100 ms with Quick
	Phase    time.Duration // of requests to a server; 0: 10 s, or 5 s with Quick
	Quick    bool          // small sizes, short windows: whether it works, not how fast it is
	All      bool          // also what takes minutes: the slow tools with 10 million addresses
	Sizes    []int         // of random address lists; nil: 1,000 to 10 million, or to 100,000 with Quick
	List     string        // a file of addresses to measure with, in place of random ones
	Progress io.Writer     // where to show a line of progress, if it is a terminal; nil: nowhere
}

// session is one experiment of a run.
type session struct {
	Options
	outcome  *Outcome
	progress *progress
}

// Unknown returns the first of these names that no experiment has; "" when all have one.
func Unknown(names []string) string {
	for _, name := range names {
		if !slices.ContainsFunc(Experiments, func(e Experiment) bool { return e.Name == name }) {
			return name
		}
	}
	return ""
}

// MaxSize is the largest number of random addresses in a list: there must be others left that are not listed.
const MaxSize = 2_000_000_000

// Run runs the named experiments, or all when none is named, in their own order. Unless nothing could be begun, the report holds what was
// measured, also together with an error: that of ctx, when it ended, or of the first experiment that could not go on.
func Run(ctx context.Context, experiments []string, o Options) (*Report, error) {
	if unknown := Unknown(experiments); unknown != "" {
		return nil, fmt.Errorf("unknown experiment %q", unknown)
	}
	if runtime.NumCPU() < 2 {
		return nil, errors.New("the bench needs two CPUs: one sends, another receives")
	}
	r := &Report{Time: time.Now().UTC().Truncate(time.Second)}
	var err error
	if r.Machine, err = lab.DescribeMachine(); err != nil {
		return nil, err
	}
	for _, e := range Experiments {
		if len(experiments) > 0 && !slices.Contains(experiments, e.Name) {
			continue
		}
		outcome := &Outcome{Name: e.Name, Doc: e.Doc, Results: []lab.Result{}, Bars: []*Bar{}, Tables: []*Table{}}
		r.Experiments = append(r.Experiments, outcome)
		s := &session{Options: o.withDefaults(), outcome: outcome, progress: newProgress(o.Progress, e.Name)}
		err := e.run(ctx, s)
		s.progress.end()
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil {
			return r, fmt.Errorf("experiment %s: %w", e.Name, err)
		}
	}
	return r, nil
}

func (o Options) withDefaults() Options {
	rounds, window, phase, sizes := 5, 500*time.Millisecond, 10*time.Second, []int{1_000, 100_000, 1_000_000, 10_000_000}
	if o.Quick {
		rounds, window, phase, sizes = 2, 100*time.Millisecond, 5*time.Second, []int{1_000, 100_000}
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
	if o.Sizes == nil {
		o.Sizes = sizes
	}
	return o
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
