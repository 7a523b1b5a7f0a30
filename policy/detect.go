package policy

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Detect is how the daemon looks for attacks.
type Detect struct {
	On       bool          `json:"on"`
	Baseline string        `json:"baseline,omitempty"` // the absolute path of a capture of legitimate traffic; "": it is learned in quiet times
	Least    uint64        `json:"least"`              // packets a second below which nothing is an attack
	Quiet    time.Duration `json:"quiet"`              // after which an attack is over
	Auto     Auto          `json:"auto,omitzero"`      // what the daemon may do by itself; the zero value is nothing
}

// Auto is the bounds of the rules that the daemon adds by itself.
type Auto struct {
	Collateral float64       `json:"collateral"` // the most of the legitimate packets that a rule may match, as a share
	For        time.Duration `json:"for"`        // after which a rule ends unless it still matches the attack
	Max        int           `json:"max"`        // how many rules there may be at a time; 0: none are added
}

// learn is the baseline that is no file.
const learn = "learn"

// What is meant by `detect` when it says nothing.
const (
	usualLeast  = 1000
	usualQuiet  = 30 * time.Second
	firstSample = 100

	usualCollateral = 0.001
	usualFor        = 10 * time.Minute
	usualMax        = 3
)

var detectKeys = []key[Detect]{
	{"baseline", func(p place, to *Detect, v *node) { to.Baseline = scalarOf(p, "baseline", v, readBaseline) }},
	{"least", func(p place, to *Detect, v *node) { to.Least = scalarOf(p, "least", v, readLeast) }},
	{"auto", func(p place, to *Detect, v *node) {
		to.Auto = Auto{usualCollateral, usualFor, usualMax}
		readKeys(p.in("auto"), "auto", v, autoKeys, &to.Auto)
	}},
	{"quiet", func(p place, to *Detect, v *node) { to.Quiet = scalarOf(p, "quiet", v, readQuiet) }},
}

var autoKeys = []key[Auto]{
	{"collateral", func(p place, to *Auto, v *node) { to.Collateral = scalarOf(p, "collateral", v, readCollateral) }},
	{"for", func(p place, to *Auto, v *node) { to.For = scalarOf(p, "for", v, readFor) }},
	{"max", func(p place, to *Auto, v *node) { to.Max = scalarOf(p, "max", v, readMax) }},
}

func readCollateral(text string) (float64, *flaw) {
	number, is := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !is || !(n >= 0.01 && n <= 5) {
		return 0, want("a percentage from 0.01% to 5%", text).hintf("write 0.1%%, which is what holds without the key")
	}
	return n / 100, nil
}

func readFor(text string) (time.Duration, *flaw) {
	d, f := duration(text)
	if f == nil && (d < 10*time.Second || d > 24*time.Hour) {
		f = want("a time from 10s to 24h", text)
	}
	return d, f
}

func readMax(text string) (int, *flaw) {
	n, f := number(text, 10)
	if f == nil && n == 0 {
		f = want("a number from 1 to 10", text).hintf("leave auto out to have no rule added")
	}
	return int(n), f
}

// UsualDetect is `detect` with `auto`, of which nothing else is said.
func UsualDetect() Detect {
	return Detect{On: true, Least: usualLeast, Quiet: usualQuiet, Auto: Auto{usualCollateral, usualFor, usualMax}}
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
