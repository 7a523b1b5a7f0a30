// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// MinMSS is the smallest announced MSS. Every host accepts it (RFC 879, less 40 bytes of headers). maxMSS is the largest MSS: that of jumbo frames.
const (
	MinMSS = 536
	maxMSS = 9000
)

// maxSynLayers is the largest number of limits of SYN-ACKs, without the limit for all sources.
const maxSynLayers = 4

// MaxWScale is the largest window scale (RFC 7323, 2.3).
const MaxWScale = 14

// maxFlows is the largest size of the flow table, in connections. A connection takes 16 to 32 bytes, because the size is a power of two, so as many
// take 2 GB.
const maxFlows = 128_000_000

// The default number of incomplete handshakes at which cookies begin. It is the number of SYNs that arrive in some seconds, but it must not fill a
// server's backlog, because a server with a full backlog refuses clients (somaxconn is 4,096 since Linux 5.4). 10,000 connections per second over a
// path with a round trip of 200 ms are 2,000 incomplete handshakes.
const (
	synSeconds = 4
	maxWaiting = 2000
)

// waiting returns the default burst of the rate at which cookies begin. The burst is a number of incomplete handshakes. second is the number of SYNs
// that the rate allows in one second.
func waiting(second uint64) uint64 { return max(second, min(second*synSeconds, maxWaiting)) }

// defaultSyn returns the parameters of `syn: protect`. Fewer than 1,000 incomplete handshakes per second do not harm any host. A network of 256
// addresses, each with many users behind it, opens far fewer than 20,000 connections per second to one service. So does the network of a proxy in
// front of the service. As many SYN-ACKs are less than 10 Mbit/s, which is not a flood for the victim of a forger. There is no limit for all sources
// together: forged SYNs would use it up and shut out all clients.
func defaultSyn(at Pos) *Syn {
	s := new(defaults(at, synKeys))
	s.Pos, s.WScale = at, -1
	s.Stop = half(*s.Start)
	s.Limits = []Over{{Pos: at, Rate: 20_000, Per: time.Second, Burst: 20_000, From: &PrefixLen{24, 56}}}
	return s
}

// half returns a limit with half the rate of o and the same burst. It is the default rate below which cookies end. If cookies ended at the rate of o,
// a flood at that rate would switch them on and off.
func half(o Over) *Over {
	o.Rate /= 2
	return &o
}

// synWords are the words that syn allows, other than off. The meaning of each is whether every SYN is answered with a cookie.
var synWords = words[bool]{{"protect", false}, {"always", true}}

var synSchema = define("syn", anyOf(synWords.schema(), offSchema, object(synKeys)).titled("`protect`, `always`, `off`, or `{when, mode, …}`"))

const synForm = "protect, always, off or a mapping"

func synWord(text string) (bool, *flaw) {
	always, f := synWords.parse(text)
	if f == nil {
		return always, nil
	}
	f = wordFlaw(synForm, text, []string{"protect", "always", "off"})
	if switches[text] || text == "auto" {
		f.hintf("write syn: protect")
	} else if _, g := readRate(text); g == nil {
		f.hintf("write syn: {start: %s}", text)
	}
	return false, f
}

func synTime(text string) (bool, *flaw) {
	always, f := synWhen.parse(text)
	if on, isSwitch := switches[text]; isSwitch && !on {
		f.hintf("write syn: off")
	} else if isSwitch || text == "protect" {
		f.hintf("write when: auto")
	}
	return always, f
}

var synKeys = []key[Syn]{
	{name: "when", value: into(word(synWhen.schema(), synTime), func(to *Syn) *bool { return &to.Always }),
		doc: "`auto`: cookies are sent from `start` until `stop`. `always`: every SYN gets one.", usual: `"auto"`, examples: `"always"`},
	{name: "mode", value: into(synModes.form(), func(to *Syn) *SynMode { return &to.Mode }),
		doc: "`host`: the service is on this host. `router`: this host forwards to it. `auto`: router when no socket listens on the port " +
			"here and this host forwards.", usual: `"auto"`, examples: `"host", "router"`},
	{name: "start", value: into(rateOfSYNs, func(to *Syn) **Over { return &to.Start }),
		doc: "The rate of SYNs that nobody completes above which cookies start. Without a `burst`, the SYNs of four seconds may wait " +
			"before that, at most 2,000 or those of one second.", usual: `"1000/s"`, examples: `"5000/s"`},
	{name: "stop", value: into(rateOfSYNs, func(to *Syn) **Over { return &to.Stop }),
		doc: "The rate of SYNs that nobody completes, below which cookies stop. When left out: half of `start`.", examples: `"2000/s"`},
	{name: "limit", value: custom(place.synLimits, limitsOrOff.schema),
		doc: "The rate of SYN-ACKs by source prefix. SYNs above it are dropped. When left out: 20000/s per from/24/56.", examples: `"off"`},
	{name: "total", value: into(totalRate, func(to *Syn) **Over { return &to.Total }),
		doc: "The rate of all SYN-ACKs. SYNs above it are dropped.", usual: `"off"`, examples: `"500000/s"`},
	{name: "authenticated",
		value: into(form[*Over]{anyOf(offSchema, synRateSchema), place.authenticated}, func(to *Syn) **Over { return &to.Authenticated }),
		doc:   "The rate of SYNs with TCP-AO or TCP MD5 options that are left to the kernel, which has the keys. SYNs above it get a cookie.",
		usual: `"off"`, examples: `"10/s"`},
	{name: "mss", value: into(between[uint16](MinMSS, maxMSS), func(to *Syn) *uint16 { return &to.MSS }),
		doc: "The MSS to announce. When left out: what the MTU of the devices allows, or what the backends announce.", examples: `1400`},
	{name: "wscale", value: into(between[int](0, MaxWScale), func(to *Syn) *int { return &to.WScale }),
		doc: "The window scale to announce. When left out: that of this host, or of the backends.", examples: `7`},
	{name: "flows", value: into(between[int](1, maxFlows), func(to *Syn) *int { return &to.Flows }),
		doc: "How many connections the flow table holds. Each takes 16 to 32 bytes from the start.", usual: `1000000`, examples: `100000`},
	{name: "backends", value: into(backends, func(to *Syn) *[]netip.Addr { return &to.Backends }),
		doc: "With `mode: router`: servers that are asked for the options of their connections.", examples: `"192.0.2.9"`},
}

var (
	synWhen  = words[bool]{{"auto", false}, {"always", true}}
	synModes = words[SynMode]{{"auto", SynModeAuto}, {"host", SynHost}, {"router", SynRouter}}
)

// syn parses the key syn.
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

// between returns the form of numbers from least to most.
func between[N int | uint16](least, most N) form[N] {
	return word(numeral(int(least), int(most), digits), func(text string) (N, *flaw) {
		n, f := number(text, uint64(most))
		if f == nil && N(n) >= least {
			return N(n), nil
		}
		g := want(fmt.Sprintf("a number from %d to %d", least, most), text)
		if f != nil {
			g.hint = f.hint
		}
		return 0, g
	})
}

var backends = form[[]netip.Addr]{listOf(addressSchema).titled("address, or a list of them"), list(addressSchema, backend).read}

// backend parses the address of a server behind this host.
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

// noRateHints has the hints for start and stop if their value is off, which is not allowed.
var noRateHints = map[string]string{
	"start": "write when: always for cookies without pause, or syn: off",
	"stop":  "leave it out for half of start, or write when: always for cookies without pause",
}

// synRateSchema is the schema of a rate for all sources together, which cannot be off.
var synRateSchema = define("synRate", anyOf(rateSchema, limitSchema).titled("rate or limit"))

var rateOfSYNs = form[*Over]{synRateSchema, place.synRate}

// synRate parses a rate of SYNs at which cookies begin or end.
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

// authenticated parses the limit of SYNs with TCP-AO or MD5 that pass to the kernel.
func (p place) authenticated(key string, v *node) *Over {
	if isOff(v) {
		return nil
	}
	return p.rateOfSYNs(key, v)
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

// synLimits parses the limits of SYN-ACKs by prefixes of sources.
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

// synLayer reports forms and keys of a limit that are not allowed for SYN-ACKs.
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
