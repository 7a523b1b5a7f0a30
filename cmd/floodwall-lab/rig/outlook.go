// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
)

// usualTime is the time of experiments with their usual rounds, in full and with Quick. It was measured on two cores of an AMD EPYC. It is used to
// estimate the remaining time of a run, and is corrected during the run.
var usualTime = map[string]struct{ full, quick time.Duration }{
	"drop":      {4 * time.Minute, 30 * time.Second},
	"sets":      {20 * time.Minute, 40 * time.Second},
	"exchange":  {6 * time.Minute, 30 * time.Second},
	"cost":      {12 * time.Minute, 50 * time.Second},
	"pass":      {8 * time.Minute, 60 * time.Second},
	"limit":     {7 * time.Minute, 50 * time.Second},
	"payload":   {5 * time.Minute, 40 * time.Second},
	"placement": {8 * time.Minute, 70 * time.Second},
	"blocklist": {15 * time.Minute, 60 * time.Second},
	"conntrack": {5 * time.Minute, 50 * time.Second},
	"dns":       {9 * time.Minute, 60 * time.Second},
	"udp":       {7 * time.Minute, 60 * time.Second},
	"detect":    {40 * time.Minute, 20 * time.Second},
	"synproxy":  {14 * time.Minute, 90 * time.Second},
	"scale":     {2 * time.Minute, 20 * time.Second},
	"program":   {time.Minute, 10 * time.Second},
	"calibrate": {50 * time.Second, 15 * time.Second},
	"calm":      {6 * time.Minute, 90 * time.Second},
}

// Usual returns the usual time of an experiment; 0 if it is unknown.
func Usual(name string, quick bool) time.Duration {
	return report.Choice(quick, usualTime[name].quick, usualTime[name].full)
}

// outlook estimates the remaining time of a run. It multiplies the usual time of the remaining experiments by a factor: the duration of the
// experiments that ended, divided by their usual time.
type outlook struct {
	options Options
	names   []string // of all experiments
	current int      // index of the one that runs
	began   time.Time
	took    time.Duration // time of the experiments that have ended
	usual   time.Duration // usual time of the same experiments
}

func newOutlook(experiments []string, o Options) *outlook {
	return &outlook{options: o, names: experiments, current: -1}
}

// begin ends the current experiment and starts the next one.
func (l *outlook) begin(now time.Time) {
	if l.current >= 0 {
		l.took += now.Sub(l.began)
		l.usual += l.usualOf(l.names[l.current])
	}
	l.current++
	l.began = now
}

// usualOf returns the usual time of an experiment with the number of rounds of this run.
func (l *outlook) usualOf(name string) time.Duration {
	usual := Usual(name, l.options.Quick)
	return usual * time.Duration(l.options.Rounds) / time.Duration(Options{Quick: l.options.Quick}.WithDefaults().Rounds)
}

// left returns the remaining time. It is at least known, which is the caller's estimate for the current experiment.
func (l *outlook) left(now time.Time, known time.Duration) time.Duration {
	slower := 1.0
	if l.usual > 0 {
		slower = float64(l.took) / float64(l.usual)
	}
	expected := func(name string) time.Duration { return time.Duration(slower * float64(l.usualOf(name))) }
	left := max(known, expected(l.names[l.current])-now.Sub(l.began))
	for _, name := range l.names[l.current+1:] {
		left += expected(name)
	}
	return left
}
