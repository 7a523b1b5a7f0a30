// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Detect has the parameters by which the daemon detects attacks.
type Detect struct {
	On       bool          `json:"on"`
	Baseline string        `json:"baseline,omitempty"` // the absolute path of a capture of legitimate traffic; "": it is learned in quiet times
	Least    uint64        `json:"least"`              // rate in packets per second below which no traffic is an attack
	Quiet    time.Duration `json:"quiet"`              // an attack is over when its traffic has been absent for this time
	Auto     Auto          `json:"auto,omitzero"`      // the rules that the daemon may add by itself; the zero value: none
}

// Auto has the bounds for the rules that the daemon adds by itself.
type Auto struct {
	Collateral float64       `json:"collateral"` // the largest share of the legitimate packets that a rule may match
	For        time.Duration `json:"for"`        // the time after which a rule expires if it no longer matches the attack
	Max        int           `json:"max"`        // the largest number of such rules at a time; 0: the daemon adds no rules
}

// learn is the value of baseline that tells the daemon to learn the baseline. Every other value is a path.
const learn = "learn"

// firstSample is the default of the daemon's sample if the policy has detect. At first, one packet in firstSample is a sample. Then the share adapts
// to the packet rate.
const firstSample = 100

var detectKeys = []key[Detect]{
	{name: "baseline", value: into(word(text("^(learn|/.*)$"), readBaseline), func(to *Detect) *string { return &to.Baseline }),
		doc: "Legitimate traffic, of which a suggested rule may match at most 0.1%: samples of what passes in quiet times (`learn`), or " +
			"the absolute path of a capture (pcap or pcapng).", examples: `"learn", "/etc/floodwall/good.pcapng"`,
		must: "write baseline: learn, or the path of a capture of legitimate traffic"},
	{name: "auto", value: custom(place.autoRules, object(autoKeys)),
		doc: "The daemon adds suggested rules by itself, as temporary rules, when samples and the baseline show that they spare legitimate " +
			"traffic. Target xdp only, where samples are taken. `floodwall status` says what is lacking.", examples: `{"collateral": "0.1%", "for": "10m", "max": 3}`},
	{name: "least", value: into(word(text("^[1-9][0-9]*/s$"), packetRate("1000/s")), func(to *Detect) *uint64 { return &to.Least }),
		doc: "Packets a second below which nothing is an attack.", usual: `"1000/s"`, examples: `"20000/s"`},
	{name: "quiet", value: into(word(text("^[0-9]+(ms|s|m|h)$"), readQuiet), func(to *Detect) *time.Duration { return &to.Quiet }),
		doc: "The time with the usual number of packets after which an attack is over.", usual: `"30s"`, examples: `"2m"`},
}

var autoKeys = []key[Auto]{
	{name: "collateral", value: into(word(text("^[0-9.]+%$"), readCollateral), func(to *Auto) *float64 { return &to.Collateral }),
		doc: "The most of the legitimate packets that a rule may match.", usual: `"0.1%"`, examples: `"0.5%"`},
	{name: "for", value: into(word(text("^[0-9]+(s|m|h)$"), readFor), func(to *Auto) *time.Duration { return &to.For }),
		doc: "The time after which a rule ends, unless it still matches the attack.", usual: `"10m"`, examples: `"30m"`},
	{name: "max", value: into(word(whole(1, 10), readMax), func(to *Auto) *int { return &to.Max }),
		doc: "How many rules there may be at a time.", usual: `3`, examples: `1`},
}

// autoRules parses the key auto.
func (p place) autoRules(to *Detect, v *node) {
	to.Auto = defaults(v.Pos, autoKeys)
	readKeys(p.in("auto"), "auto", v, autoKeys, &to.Auto)
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

// UsualDetect returns the parameters of `detect` with `auto`. All keys of both have their defaults.
func UsualDetect() Detect {
	d := defaults(Pos{}, detectKeys)
	d.On, d.Auto = true, defaults(Pos{}, autoKeys)
	return d
}

// detect parses the key detect. Detection needs samples of the traffic.
func (p place) detect(to *Policy, v *node) {
	p = p.in("detect")
	d := defaults(v.Pos, detectKeys)
	d.On = true
	readKeys(p, "detect", v, detectKeys, &d)
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

// packetRate returns a parser of rates in packets per second. usual is the rate that holds without the key.
func packetRate(usual string) func(text string) (uint64, *flaw) {
	return func(text string) (uint64, *flaw) {
		r, f := readRate(text)
		if f == nil && (r.bits || r.per != time.Second) {
			f = want("packets a second, as in "+usual, text)
		}
		if f != nil {
			f.hintf("write %s, which is what holds without the key", usual)
		}
		return r.n, f
	}
}

func readQuiet(text string) (time.Duration, *flaw) {
	d, f := duration(text)
	if f == nil && (d < time.Second || d > time.Hour) {
		f = want("a time from 1s to 1h", text)
	}
	return d, f
}
