// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"maps"
	"runtime"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// Calibrate measures the cost of packets on this host in less than a minute. It uses a lab with a router that has a copy of this host's routes.
func Calibrate(ctx context.Context, o Options) (*Calibration, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("calibration needs two CPUs: one measures, another is measured")
	}
	o = o.WithDefaults()
	s := &rig.Session{Options: o, Steps: rig.NewProgress(o.Progress, []string{"calibrate"}, o)}
	s.Steps.Begin()
	defer s.Steps.End()
	table, err := rig.HostRoutes()
	if err != nil {
		return nil, err
	}
	c, err := runCalibration(ctx, s, Groups, maps.All(table), "")
	if err == nil {
		c.Table.AddNote("The table of routes is a copy of this host's, of %s.", report.Things(len(table), "route", "routes"))
	}
	return c, err
}
