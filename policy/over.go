package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// maxLayers is how many limits a rule can have.
const maxLayers = 8

// overForm is a limit while it is read.
type overForm struct {
	over  *Over
	burst amount
	ban   *node
}

var overKeys = []key[overForm]{
	{"rate", place.rate},
	{"per", place.per},
	{"burst", func(p place, to *overForm, v *node) { to.burst = scalarOf(p, "burst", v, readBurst) }},
	{"max", func(p place, to *overForm, v *node) { to.over.Max = scalarOf(p, "max", v, capacity) }},
	{"ban", func(p place, to *overForm, v *node) { to.over.Ban, to.ban = p.ban(v), v }},
}

// layersOf are the limits of a key: one, or several in a list.
func layersOf(v *node) []*node {
	if v.Kind == yamltree.List {
		return v.Items
	}
	return []*node{v}
}

// overs reads limits: one in a mapping, or several in a list.
func (p place) overs(key string, v *node) []Over {
	layers := layersOf(v)
	switch {
	case v.Kind == yamltree.Broken:
		return nil
	case len(layers) == 0:
		p.errorf(v.Pos, "%s is an empty list", key).Hint = fmt.Sprintf("write %s: {rate: 1000/s, per: from}", key)
	case len(layers) > maxLayers:
		p.errorf(layers[maxLayers].Pos, "%s has %d limits, and at most %d can be asked", key, len(layers), maxLayers).Hint =
			"spread them over two rules"
	}
	var all []Over
	for _, n := range layers {
		all = append(all, p.over(key, n))
	}
	return all
}

// shortRateHint says how a limit is written whose rate stands alone.
func shortRateHint(key, text string) string {
	if _, f := readRate(text); f != nil {
		text = "1000/s"
	}
	if key == "responses" {
		return fmt.Sprintf("write {rate: %s, per: to}", text)
	}
	return fmt.Sprintf("write {rate: %s, per: from}, or without per for one rate for all", text)
}

// over reads one limit, and works its defaults in.
func (p place) over(key string, n *node) Over {
	o := Over{Pos: n.Pos}
	if n.Kind == yamltree.Word {
		p.errorf(n.Pos, "%s must be a mapping, got %s", key, n).Hint = shortRateHint(key, n.Text)
		return o
	}
	form, before := overForm{over: &o}, len(p.r.errs)
	seen := readKeys(p, key, n, overKeys, &form)
	tooMuch := "say what is too much, as in rate: 1000/s"
	if key == "over" {
		tooMuch += " or connections: 20"
	}
	p.require(n, seen, "rate", tooMuch)
	if len(p.r.errs) > before || !n.Whole() {
		return o
	}
	if form.ban != nil && o.From == nil {
		p.errorf(form.ban.Pos, "ban needs a limit by sources: nobody else can be banned").Hint = "add per: from to the limit"
	}
	if o.From == nil && o.To == nil && o.Max != 0 {
		p.errorf(n.Get("max").Pos, "max is of prefixes, and the limit is one for all").Hint = "remove it, or add per: from"
	}
	if len(p.r.errs) == before {
		p.burst(&o, form.burst, n)
	}
	return o
}

func (p place) rate(to *overForm, v *node) {
	r := scalarOf(p, "rate", v, readRate)
	to.over.Rate, to.over.Per, to.over.Bits = r.n, r.per, r.bits
}

// readBurst reads what may come at once.
func readBurst(text string) (amount, *flaw) {
	a, f := readAmount(text)
	if f == nil {
		return a, nil
	}
	f = want("a number of packets, or of bits as in 200kbit", text)
	if _, g := duration(text); g == nil {
		return a, f.hintf("it is no time: left out, it is what the rate gives in a second")
	}
	if _, g := readRate(text); g == nil {
		number, _, _ := strings.Cut(text, "/")
		return a, f.hintf("it is no rate: write %s", number)
	}
	if digits, unit := leadingDigits(text); digits != "" {
		if usual, time, ok := habit(digits, unit); ok && time == "" {
			f.hintf("write %s", usual)
		}
	}
	return a, f
}

// maxRefill is how long a burst may take to be had again.
const maxRefill = 30 * 24 * time.Hour

// burst is the burst of o, which n is: as given, or what the rate gives in a second, but no less than a few packets, which
// even those below the rate send at once.
func (p place) burst(o *Over, given amount, n *node) {
	least, unit := amount{1, false}, "packets"
	if o.Bits {
		least, unit = amount{packetBits, true}, "bits"
	}
	v := n.Get("burst")
	if v == nil {
		o.Burst = o.usualBurst().n
		return
	}
	o.Burst = given.n
	switch {
	case given.bits != o.Bits:
		p.errorf(v.Pos, "burst must be in %s, as rate is, got %s", unit, v).Hint = fmt.Sprintf("write burst: %s", o.usualBurst())
	case given.n < least.n && o.Bits:
		p.errorf(v.Pos, "burst must be at least 12kbit, a packet of 1,500 bytes, got %s", v).Hint =
			"packets that are longer than the burst always exceed the rate"
	case given.n < least.n:
		p.errorf(v.Pos, "burst must be at least 1, got %s", v).Hint =
			"it is what may come at once; left out, it is what the rate gives in a second"
	case given.n/o.Rate > uint64(maxRefill/o.Per):
		p.errorf(v.Pos, "burst must be at most what the rate gives in 30 days, got %s", v).Hint =
			"give a greater rate, or a smaller burst"
	}
}

// usualBurst is the burst of a limit that gives none.
func (o *Over) usualBurst() amount {
	if o.Bits {
		return amount{max(o.Rate/uint64(o.Per/time.Second), 10*packetBits), true}
	}
	return amount{max(o.Rate/uint64(o.Per/time.Second), 5), false}
}

// notOver reports a limit under not.
func (p place) notOver(_ *Match, v *node) {
	p.errorf(v.Pos, "over cannot be negated").Hint =
		"a rule with over matches what exceeds the rate: decide that, and let a rule behind it decide the rest"
}
