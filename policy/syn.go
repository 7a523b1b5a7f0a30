package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// MinMSS is the least MSS that is announced, and maxMSS the largest: what every host takes (RFC 879, less the headers of 40 bytes), and what the largest
// usual frames carry.
const (
	MinMSS = 536
	maxMSS = 9000
)

// maxSynLayers is how many limits SYN-ACKs can have, beside that in all.
const maxSynLayers = 4

// MaxWScale is the largest window scale (RFC 7323, 2.3).
const MaxWScale = 14

// defaultFlows are the connections that are remembered, in a table of 16 to 32 bytes for each, as its size is a power of
// two; maxFlows take 2 GB.
const (
	defaultFlows = 1_000_000
	maxFlows     = 128_000_000
)

// The SYNs that may wait to be completed before cookies begin, if nothing is said: those of some seconds, but not so many
// that they fill the backlog of a server, at which it refuses clients (somaxconn is 4,096 since Linux 5.4). 10,000 connections a
// second over a path of 200 ms wait for it 2,000 at a time.
const (
	synSeconds = 4
	maxWaiting = 2000
)

// waiting is the burst of a rate of SYNs whose burst of one second is this.
func waiting(second uint64) uint64 { return max(second, min(second*synSeconds, maxWaiting)) }

// defaultSyn is `syn: protect`. Fewer than 1,000 SYNs a second that nobody completes do no host harm. A network of 256 addresses in which
// each has many users behind it opens far fewer than 20,000 connections a second to one service, and so does the one
// network of a proxy in front of it; and as many SYN-ACKs, less than 10 Mbit/s, are no flood to whom a forger chooses.
// There is no limit for all together: one that forged SYNs use up would shut out everybody.
func defaultSyn(at Pos) *Syn {
	start := Over{Pos: at, Rate: 1000, Per: time.Second, Burst: waiting(1000)}
	return &Syn{
		Pos:    at,
		Start:  &start,
		Stop:   half(start),
		Limits: []Over{{Pos: at, Rate: 20_000, Per: time.Second, Burst: 20_000, From: &PrefixLen{24, 56}}},
		WScale: -1,
		Flows:  defaultFlows,
	}
}

// half is half the rate, below which cookies end when nothing else is said: a flood at the rate itself must not switch
// them on and off. As many SYNs may wait to be completed as before.
func half(o Over) *Over {
	o.Rate /= 2
	return &o
}

// synWords are the values of syn where it is one word, beside off: whether every SYN is answered with a cookie.
var synWords = map[string]bool{"protect": false, "always": true}

const synForm = "protect, always, off or a mapping"

func synWord(text string) (bool, *flaw) {
	always, ok := synWords[text]
	if ok {
		return always, nil
	}
	f := wordFlaw(synForm, text, []string{"protect", "always", "off"})
	if switches[text] || text == "auto" {
		f.hintf("write syn: protect")
	} else if _, g := readRate(text); g == nil {
		f.hintf("write syn: {start: %s}", text)
	}
	return false, f
}

func synTime(text string) (bool, *flaw) {
	always, f := choice(synWhen)(text)
	if on, isSwitch := switches[text]; isSwitch && !on {
		f.hintf("write syn: off")
	} else if isSwitch || text == "protect" {
		f.hintf("write when: auto")
	}
	return always, f
}

var synKeys = []key[Syn]{
	{"when", func(p place, to *Syn, v *node) { to.Always = scalarOf(p, "when", v, synTime) }},
	{"mode", func(p place, to *Syn, v *node) { to.Mode = scalarOf(p, "mode", v, choice(synModes)) }},
	{"start", func(p place, to *Syn, v *node) { to.Start = p.synRate("start", v) }},
	{"stop", func(p place, to *Syn, v *node) { to.Stop = p.synRate("stop", v) }},
	{"limit", place.synLimits},
	{"total", func(p place, to *Syn, v *node) { to.Total = p.totalRate("total", v) }},
	{"authenticated", func(p place, to *Syn, v *node) { to.Authenticated = p.authenticated(v) }},
	{"mss", func(p place, to *Syn, v *node) { to.MSS = uint16(scalarOf(p, "mss", v, between(MinMSS, maxMSS))) }},
	{"wscale", func(p place, to *Syn, v *node) { to.WScale = int(scalarOf(p, "wscale", v, between(0, MaxWScale))) }},
	{"flows", func(p place, to *Syn, v *node) { to.Flows = int(scalarOf(p, "flows", v, between(1, maxFlows))) }},
	{"backends", func(p place, to *Syn, v *node) { to.Backends = values(p, "backends", v, backend) }},
}

var (
	synWhen  = map[string]bool{"auto": false, "always": true}
	synModes = map[string]SynMode{"auto": SynModeAuto, "host": SynHost, "router": SynRouter}
)

// syn reads the key syn.
func (p place) syn(to *Service, v *node) {
	to.Syn = defaultSyn(v.Pos)
	switch {
	case isOff(v):
		to.Syn = nil
		return
	case v.Kind == yamltree.Word:
		to.Syn.Always = scalarOf(p, "syn", v, synWord)
	case v.Kind == yamltree.List:
		p.errorf(v.Pos, "syn must be %s, got a list", synForm).Hint = "write syn: protect"
		return
	default:
		in, before := p.in("syn"), len(p.r.errs)
		readKeys(in, "it", v, synKeys, to.Syn)
		if len(p.r.errs) == before && v.Whole() {
			in.hysteresis(to.Syn, v)
			in.synBackends(to.Syn, v)
		}
	}
	if to.Syn.Always {
		to.Syn.Start, to.Syn.Stop = nil, nil
	}
}

// between reads a number that has a least value, too.
func between(least, most uint64) func(string) (uint64, *flaw) {
	return func(text string) (uint64, *flaw) {
		n, f := number(text, most)
		if f == nil && n >= least {
			return n, nil
		}
		g := want(fmt.Sprintf("a number from %d to %d", least, most), text)
		if f != nil {
			g.hint = f.hint
		}
		return 0, g
	}
}

// backend reads the address of a server.
func backend(text string) ([]netip.Addr, *flaw) {
	r, f := addrRange(text)
	if f == nil && r.First == r.Last {
		return []netip.Addr{r.First}, nil
	}
	g := want("the address of one server", text)
	switch {
	case f == nil || strings.Contains(text, "/"):
		g.hintf("name each server that is to be asked")
	case strings.HasPrefix(f.hint, "write ") || strings.HasPrefix(f.hint, "an IPv4 address"):
		g.hint = f.hint
	default:
		g.hintf("names and sets are not looked up: write each server's address, as in backends: [192.0.2.9]")
	}
	return nil, g
}

// noRateHints say what else to write where there is no rate at which cookies begin or end.
var noRateHints = map[string]string{
	"start": "write when: always for cookies without pause, or syn: off",
	"stop":  "leave it out for half of start, or write when: always for cookies without pause",
}

// synRate reads a rate of SYNs at which cookies begin or end.
func (p place) synRate(key string, v *node) *Over {
	if isOff(v) {
		p.errorf(v.Pos, "%s must be a rate of SYNs, got %s", key, v).Hint = noRateHints[key]
		return nil
	}
	o := p.rateOfSYNs(key, v)
	if v.Kind == yamltree.Word || v.Get("burst") == nil {
		o.Burst = waiting(o.Burst)
	}
	return o
}

// authenticated reads how many SYNs with TCP-AO or MD5 are left to the kernel.
func (p place) authenticated(v *node) *Over {
	if isOff(v) {
		return nil
	}
	return p.rateOfSYNs("authenticated", v)
}

func (p place) rateOfSYNs(key string, v *node) *Over {
	before := len(p.r.errs)
	o := p.rateForAll(key, v, func(text string) (rate, *flaw) {
		r, f := readRate(text)
		if f != nil && r.per != 0 && r.n == 0 && noRateHints[key] != "" {
			f.hintf("%s", noRateHints[key])
		}
		return r, f
	})
	if o == nil {
		o = &Over{Pos: v.Pos}
	}
	if len(p.r.errs) == before && o.Bits {
		p.errorf(v.Pos, "%s is a rate of SYNs, not of bits", key).Hint = "write " + key + ": 1000/s"
	}
	return o
}

// synLimits reads the limits of SYN-ACKs by prefixes of sources.
func (p place) synLimits(to *Syn, v *node) {
	to.Limits = nil
	if isOff(v) {
		return
	}
	before := len(p.r.errs)
	for _, n := range layersOf(v) {
		p.synLayer(n)
	}
	if len(p.r.errs) > before {
		return
	}
	to.Limits = p.overs("limit", v)
	if len(p.r.errs) > before || !v.Whole() {
		return
	}
	if len(to.Limits) > maxSynLayers {
		p.errorf(to.Limits[maxSynLayers].Pos, "limit has %d limits, and at most %d can be asked", len(to.Limits), maxSynLayers).Hint =
			"leave out those that others imply"
	}
	for _, o := range to.Limits {
		if o.From == nil {
			p.errorf(o.Pos, "limit is by sources, whom SYN-ACKs go to").Hint = "write per: from/24/56, or total for one rate for all"
		}
	}
}

// synLayer reports what other limits may be or have, and one of SYN-ACKs may not.
func (p place) synLayer(n *node) {
	switch {
	case n.Kind == yamltree.Word:
		text := n.Text
		if _, f := readRate(text); f != nil {
			text = "1000/s"
		}
		p.errorf(n.Pos, "limit must be a mapping, got %s", n).Hint =
			fmt.Sprintf("write {rate: %s, per: from}, or total: %s for one rate for all", text, text)
	case n.Get("ban") != nil:
		p.errorf(n.Pos, "limit cannot ban: anybody can write another's address into a SYN").Hint = "remove ban"
	}
}
