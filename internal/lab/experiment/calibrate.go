// This file measures what packets cost on a host, for the model by which rules are placed.

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// Calibration is the costs of this host, and a table of them.
type Calibration struct {
	Model *cost.Model   `json:"model"`
	Table *report.Table `json:"table"`
}

// runCalibration measures these groups, with a table of routes. beside is what else nft has on the host, "" for nothing.
func runCalibration(ctx context.Context, s *rig.Session, groups []Group, table rig.Routes, beside string) (*Calibration, error) {
	host, err := cost.ThisHost()
	if err != nil {
		return nil, err
	}
	c := &calibration{table: table, beside: beside, model: cost.Model{
		Host: host, Time: time.Now().UTC().Truncate(time.Second), Reach: map[string]float64{}, Work: map[string]cost.Work{},
	}}
	for _, g := range groups {
		err := rig.InLab(ctx, func(l *lab.Lab) error {
			c.Builder = rig.Builder{Session: s, Lab: l}
			defer c.Close()
			return c.group(ctx, g)
		})
		if err != nil {
			return nil, fmt.Errorf("calibrate %s: %w", g.target, err)
		}
	}
	return &Calibration{&c.model, c.result()}, nil
}

// Group is a target's stages, which are measured in turn with each other. What XDP leaves to later stages is done by
// nftables.
type Group struct {
	target string
	stages []string
}

// Groups are all that can be measured.
var Groups = []Group{
	{"xdp", []string{"xdp"}},
	{"nftables", []string{"ingress", "raw", "filter"}},
	{"iptables", []string{"raw", "filter"}},
}

// calibration is a cost model in the making.
type calibration struct {
	rig.Builder
	table    rig.Routes
	beside   string
	model    cost.Model
	measured []*stageProbes
	behind   behindProbes
	missing  []string
}

// group installs and measures all that one target does.
func (c *calibration) group(ctx context.Context, g Group) error {
	base, err := c.base(ctx, g.target)
	if err != nil {
		return err
	}
	all := []*rig.Probe{base}
	var stages []*stageProbes
	for _, stage := range g.stages {
		p := &stageProbes{target: g.target, stage: stage, base: base}
		reason, err := rig.Tolerate(c.install(ctx, p))
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
	return c.Probes(ctx, all, probeRounds, 0, packets(c.Session))
}

// How figures are taken: in many short rounds, so that some are undisturbed. sentRate is about what a core sends,
// forwards and receives again.
const (
	probeRounds = 16
	sentRate    = 700_000
)

// packets is how many packets a round is: a fourteenth of a window.
func packets(s *rig.Session) uint64 {
	return uint64(sentRate * s.Window.Seconds() / 14)
}

// base is a router that the target's others are compared with.
func (c *calibration) base(ctx context.Context, target string) (*rig.Probe, error) {
	at, err := c.router(ctx, rig.DefaultRoute)
	if err != nil {
		return nil, err
	}
	return &rig.Probe{Label: target + ", nothing", Subject: rig.Subject{Site: at}, Flows: []lab.Flow{forwardedFlow}}, nil
}

// router builds another site.
func (c *calibration) router(ctx context.Context, table rig.Routes) (*rig.Site, error) {
	c.Sites++
	at, err := rig.NewRouter(c.Lab, c.Sites, table)
	if err != nil {
		return nil, err
	}
	return at, c.InstallNft(ctx, at, c.beside)
}

// behindProbes are drops at the filter stage, which differ in what is before it.
type behindProbes struct{ plain, routed, tracked *rig.Probe }

// trackAll has conntrack look at all packets: that anything asks for a state is enough.
const trackAll = "table inet track {\nchain output {\ntype filter hook output priority filter; policy accept;\nct state invalid counter\n}\n}\n"

func (c *calibration) installBehind(ctx context.Context) (err error) {
	for _, p := range []struct {
		probe  **rig.Probe
		label  string
		table  rig.Routes
		script string
	}{
		{&c.behind.plain, "drop at filter", rig.DefaultRoute, ""},
		{&c.behind.routed, "drop at filter, with the table of routes", c.table, ""},
		{&c.behind.tracked, "drop at filter, with conntrack", rig.DefaultRoute, trackAll},
	} {
		c.Steps.Show("installing %s", p.label)
		at, err := c.router(ctx, p.table)
		if err != nil {
			return err
		}
		if err := c.InstallNft(ctx, at, p.script); err != nil {
			return err
		}
		if _, err := c.Hold(ctx, at, policyAt("filter", dropped), "nftables"); err != nil {
			return err
		}
		*p.probe = &rig.Probe{Label: p.label, Subject: rig.Subject{Site: at}, Flows: []lab.Flow{localFlow}}
	}
	return nil
}
