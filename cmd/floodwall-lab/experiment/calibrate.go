// SPDX-License-Identifier: Apache-2.0

// This file measures the cost of packets on a host. The cost model for the placement of rules uses these costs.

package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/model/cost"
)

// Calibration has the costs of packets on this host, and a table of the costs.
type Calibration struct {
	Model *cost.Model   `json:"model"`
	Table *report.Table `json:"table"`
}

// runCalibration measures the given groups at a router with a table of routes. The parameter beside is another nft script of the host, or "".
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

// Group has the stages of a target, which are measured in turn. The stages after XDP belong to nftables.
type Group struct {
	target string
	stages []string
}

// Groups are all groups that can be measured.
var Groups = []Group{
	{"xdp", []string{"xdp"}},
	{"nftables", []string{"ingress", "raw", "filter"}},
	{"iptables", []string{"raw", "filter"}},
}

// calibration is a cost model under construction.
type calibration struct {
	rig.Builder
	table    rig.Routes
	beside   string
	model    cost.Model
	measured []*stageProbes
	missing  []string

	plain, routed, tracked *rig.Probe // drops at the filter stage, which differ in the work before that stage
}

// group sets up and measures all stages of a target.
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
		all = append(all, c.plain, c.routed, c.tracked)
	}
	c.measured = append(c.measured, stages...)
	return c.Probes(ctx, all, probeRounds, 0, packets(c.Session))
}

// Each figure is measured in many short rounds, so that some rounds are undisturbed. sentRate is roughly the rate in packets per second at which one
// core can send, forward and receive packets.
const (
	probeRounds = 16
	sentRate    = 700_000
)

// packets returns the number of packets in a round. A round takes a fourteenth of a window.
func packets(s *rig.Session) uint64 {
	return uint64(sentRate * s.Window.Seconds() / 14)
}

// base returns the probe of a router without rules. The other probes of the target are compared with it.
func (c *calibration) base(ctx context.Context, target string) (*rig.Probe, error) {
	at, err := c.router(ctx, rig.DefaultRoute)
	if err != nil {
		return nil, err
	}
	return &rig.Probe{Label: target + ", nothing", Subject: rig.Subject{Site: at}, Flows: []lab.Flow{forwardedFlow}}, nil
}

// router builds another site with a router.
func (c *calibration) router(ctx context.Context, table rig.Routes) (*rig.Site, error) {
	c.Sites++
	at, err := rig.NewRouter(c.Lab, c.Sites, table)
	if err != nil {
		return nil, err
	}
	return at, c.Guard(ctx, at, rig.Guard{Nft: c.beside})
}

// trackAll is an nft script that makes conntrack track all packets. One rule that uses a state is enough.
const trackAll = "table inet track {\nchain output {\ntype filter hook output priority filter; policy accept;\nct state invalid counter\n}\n}\n"

func (c *calibration) installBehind(ctx context.Context) (err error) {
	for _, p := range []struct {
		probe  **rig.Probe
		label  string
		table  rig.Routes
		script string
	}{
		{&c.plain, "drop at filter", rig.DefaultRoute, ""},
		{&c.routed, "drop at filter, with the table of routes", c.table, ""},
		{&c.tracked, "drop at filter, with conntrack", rig.DefaultRoute, trackAll},
	} {
		c.Steps.Show("installing %s", p.label)
		at, err := c.router(ctx, p.table)
		if err != nil {
			return err
		}
		g := rig.Floodwall("nftables", policyAt("filter", dropped))
		g.Nft = p.script
		if err := c.Guard(ctx, at, g); err != nil {
			return err
		}
		*p.probe = &rig.Probe{Label: p.label, Subject: rig.Subject{Site: at}, Flows: []lab.Flow{localFlow}}
	}
	return nil
}
