package bench

import (
	"context"
	"errors"
	"maps"
	"runtime"
)

// Calibrate measures what packets cost on this host: in a lab, to whose router this host's routes are copied. It takes
// less than a minute.
func Calibrate(ctx context.Context, o Options) (*Calibration, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("calibration needs two CPUs: one measures, another is measured")
	}
	o = o.withDefaults()
	s := &session{Options: o, progress: newProgress(o.Progress, newOutlook([]string{"calibrate"}, o))}
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
