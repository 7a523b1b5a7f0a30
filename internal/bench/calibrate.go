package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/cost"
	"github.com/floodwall/floodwall/internal/lab"
)

// Calibration is the costs of this host, and a table of them.
type Calibration struct {
	Model *cost.Model `json:"model"`
	Table *Table      `json:"table"`
}

// Calibrate measures what packets cost on this host: in a lab, to whose router this host's routes are copied. It takes
// less than a minute.
func Calibrate(ctx context.Context, o Options) (*Calibration, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("calibration needs two CPUs: one measures, another is measured")
	}
	o = o.withDefaults()
	s := &session{Options: o, progress: newProgress(o.Progress, newOutlook([]Experiment{{Name: "calibrate"}}, o))}
	s.progress.begin()
	defer s.progress.end()
	table, err := hostRoutes()
	if err != nil {
		return nil, err
	}
	c, err := s.calibrate(ctx, calibrationGroups, maps.All(table), "")
	if err == nil {
		c.Table.note("The table of routes is a copy of this host's, of %s.", things(len(table), "route", "routes"))
	}
	return c, err
}

// calibrate measures these groups, with a table of routes. beside is what else nft has on the host, "" for nothing.
func (s *session) calibrate(ctx context.Context, groups []calibrationGroup, table routes, beside string) (*Calibration, error) {
	host, err := cost.ThisHost()
	if err != nil {
		return nil, err
	}
	c := &calibration{table: table, beside: beside, model: cost.Model{
		Host: host, Time: time.Now().UTC().Truncate(time.Second), Reach: map[string]float64{}, Work: map[string]cost.Work{},
	}}
	for _, g := range groups {
		err := inLab(ctx, func(l *lab.Lab) error {
			c.builder = builder{session: s, lab: l}
			defer c.close()
			return c.group(ctx, g)
		})
		if err != nil {
			return nil, fmt.Errorf("calibrate %s: %w", g.target, err)
		}
	}
	return &Calibration{&c.model, c.result()}, nil
}

// calibrationGroup is a target's stages, which are measured in turn with each other. What XDP leaves to later stages is
// done by nftables.
type calibrationGroup struct {
	target string
	stages []string
}

var calibrationGroups = []calibrationGroup{
	{"xdp", []string{"xdp"}},
	{"nftables", []string{"ingress", "raw", "filter"}},
	{"iptables", []string{"raw", "filter"}},
}

// calibration is a cost model in the making.
type calibration struct {
	builder
	table    routes
	beside   string
	model    cost.Model
	measured []*stageProbes
	behind   behindProbes
	missing  []string
}

// group installs and measures all that one target does.
func (c *calibration) group(ctx context.Context, g calibrationGroup) error {
	base, err := c.base(ctx, g.target)
	if err != nil {
		return err
	}
	all := []*probe{base}
	var stages []*stageProbes
	for _, stage := range g.stages {
		p := &stageProbes{target: g.target, stage: stage, base: base}
		reason, err := tolerate(c.install(ctx, p))
		if err != nil {
			return fmt.Errorf("%s: %w", stage, err)
		}
		if reason != "" {
			c.missing = append(c.missing, fmt.Sprintf("%s at %s is not measured: %s", g.target, stage, reason))
			continue
		}
		stages, all = append(stages, p), append(all, p.all()...)
	}
	if g.target == "nftables" {
		if err := c.installBehind(ctx); err != nil {
			return err
		}
		all = append(all, c.behind.plain, c.behind.routed, c.behind.tracked)
	}
	c.measured = append(c.measured, stages...)
	return c.probes(ctx, all, calibrationRounds, 0, c.calibrationPackets())
}

// How figures are taken: in many short rounds, so that some are undisturbed. calibrationRate is about what a core sends,
// forwards and receives again.
const (
	calibrationRounds = 16
	calibrationRate   = 700_000
)

// calibrationPackets is how many packets a round is: a fourteenth of a window.
func (s *session) calibrationPackets() uint64 {
	return uint64(calibrationRate * s.Window.Seconds() / 14)
}

// base is a router that the target's others are compared with.
func (c *calibration) base(ctx context.Context, target string) (*probe, error) {
	at, err := c.router(ctx, defaultRoute)
	if err != nil {
		return nil, err
	}
	return &probe{label: target + ", nothing", subject: subject{site: at}, flows: []lab.Flow{forwardedFlow}}, nil
}

// router builds another site.
func (c *calibration) router(ctx context.Context, table routes) (*site, error) {
	c.sites++
	at, err := newRouter(c.lab, c.sites, table)
	if err != nil {
		return nil, err
	}
	return at, c.nft(ctx, at, c.beside)
}

// nft has nft take a script.
func (b *builder) nft(ctx context.Context, at *site, script string) error {
	_, _, err := runTool(ctx, at.server, strings.NewReader(script), "nft", "-f", "-")
	return err
}

// behindProbes are drops at the filter stage, which differ in what is before it.
type behindProbes struct{ plain, routed, tracked *probe }

// trackAll has conntrack look at all packets: that anything asks for a state is enough.
const trackAll = "table inet track {\nchain output {\ntype filter hook output priority filter; policy accept;\nct state invalid counter\n}\n}\n"

func (c *calibration) installBehind(ctx context.Context) (err error) {
	for _, p := range []struct {
		probe  **probe
		label  string
		table  routes
		script string
	}{
		{&c.behind.plain, "drop at filter", defaultRoute, ""},
		{&c.behind.routed, "drop at filter, with the table of routes", c.table, ""},
		{&c.behind.tracked, "drop at filter, with conntrack", defaultRoute, trackAll},
	} {
		c.progress.show("installing %s", p.label)
		at, err := c.router(ctx, p.table)
		if err != nil {
			return err
		}
		if err := c.nft(ctx, at, p.script); err != nil {
			return err
		}
		if _, err := c.hold(ctx, at, policyAt("filter", dropped), "nftables"); err != nil {
			return err
		}
		*p.probe = &probe{label: p.label, subject: subject{site: at}, flows: []lab.Flow{localFlow}}
	}
	return nil
}
