package policy

import (
	"path/filepath"
	"time"
)

// Detect is how the daemon looks for attacks.
type Detect struct {
	On       bool          `json:"on"`
	Baseline string        `json:"baseline,omitempty"` // the absolute path of a capture of legitimate traffic; "": it is learned in quiet times
	Least    uint64        `json:"least"`              // packets a second below which nothing is an attack
	Quiet    time.Duration `json:"quiet"`              // after which an attack is over
}

// learn is the baseline that is no file.
const learn = "learn"

// What is meant by `detect` when it says nothing.
const (
	usualLeast  = 1000
	usualQuiet  = 30 * time.Second
	usualSample = 1000
)

var detectKeys = []key[Detect]{
	{"baseline", func(p place, to *Detect, v *node) { to.Baseline = scalarOf(p, "baseline", v, readBaseline) }},
	{"least", func(p place, to *Detect, v *node) { to.Least = scalarOf(p, "least", v, readLeast) }},
	{"quiet", func(p place, to *Detect, v *node) { to.Quiet = scalarOf(p, "quiet", v, readQuiet) }},
}

// detect reads how the daemon looks for attacks. It needs samples of the traffic.
func (p place) detect(to *Policy, v *node) {
	p = p.in("detect")
	d := Detect{On: true, Least: usualLeast, Quiet: usualQuiet}
	if seen := readKeys(p, "detect", v, detectKeys, &d); seen != nil {
		p.require(v, seen, "baseline", "write baseline: learn, or the path of a capture of legitimate traffic")
	}
	to.Daemon.Detect = d
}

func readBaseline(text string) (string, *flaw) {
	if text == learn {
		return "", nil
	}
	if !filepath.IsAbs(text) {
		return "", want("learn or an absolute path", text).hintf("write learn, or begin the path of a capture with /")
	}
	return text, nil
}

func readLeast(text string) (uint64, *flaw) {
	r, f := readRate(text)
	if f == nil && (r.bits || r.per != time.Second) {
		f = want("packets a second, as in 1000/s", text)
	}
	if f != nil {
		f.hintf("write 1000/s, which is what holds without the key")
	}
	return r.n, f
}

func readQuiet(text string) (time.Duration, *flaw) {
	d, f := duration(text)
	if f == nil && (d < time.Second || d > time.Hour) {
		f = want("a time from 1s to 1h", text)
	}
	return d, f
}
