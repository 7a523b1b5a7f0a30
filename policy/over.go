// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/policy/yamltree"
)

// maxLayers is the largest number of limits of a rule.
const maxLayers = 8

// overForm is a limit while it is being parsed.
type overForm struct {
	over  *Over
	burst amount
	ban   *node
}

var overKeys = []key[overForm]{
	{name: "rate", value: custom(place.rate, rateSchema),
		doc: "Packets or bits in a time.", examples: `"1000/s", "10mbit/s"`,
		must: "say what is too much, as in rate: 1000/s"},
	{name: "per", value: custom(place.per, listUpTo(2, perSchema)),
		doc: "One rate for each prefix of sources or destinations, or for each pair of them. When left out: one rate for all packets.", examples: `"from/24/56"`},
	{name: "burst", value: into(word(anyOf(whole(1, nil), text("^[0-9]+([kmg]?bit)?$")), readBurst), func(to *overForm) *amount { return &to.burst }),
		doc: "Packets or bits that may come at once. When left out: the rate of one second, at least 5 packets or 120kbit; `start` of `syn` " +
			"has more.", examples: `200`},
	{name: "max", value: into(capacity, func(to *overForm) *int { return &to.over.Max }),
		doc: "How many prefixes the table holds. When left out: a number that follows from the rate.", examples: `100000`},
	{name: "ban", value: custom(func(p place, to *overForm, v *node) { to.over.Ban, to.ban = p.ban(v), v }, banSchema),
		doc: "Puts the source's prefix into a dynamic set for this time. `floodwall daemon` must run.", examples: `"10m"`},
}

var (
	limitSchema = define("limit", object(overKeys).titled("limit"))
	ratesSchema = define("rates", listUpTo(maxLayers, limitSchema).titled("limit …").described(
		"Rates. A packet is charged to those of a list in their order, until it exceeds one.").withExamples(`{"rate": "1000/s", "per": "from"}`))
	overSchema = anyOf(limitSchema, connLimitSchema, listUpTo(maxLayers, limitSchema).AnyOf[1], listUpTo(1, connLimitSchema).AnyOf[1]).
			titled("limit …")
)

// ruleOverKeys are the keys of a limit of a rule. A rule can also limit a number of connections, which the hint mentions.
var ruleOverKeys = func() []key[overForm] {
	keys := slices.Clone(overKeys)
	keys[0].must += " or connections: 20"
	return keys
}()

// layersOf returns the limits of a key: one, or several in a list.
func layersOf(v *node) []*node {
	if v.Kind == yamltree.List {
		return v.Items
	}
	return []*node{v}
}

// overs parses limits: a mapping is one limit, and a list has several.
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

// shortRateHint returns a hint for a limit that is written as a rate alone.
func shortRateHint(key, text string) string {
	if _, f := readRate(text); f != nil {
		text = "1000/s"
	}
	if key == "responses" {
		return fmt.Sprintf("write {rate: %s, per: to}", text)
	}
	return fmt.Sprintf("write {rate: %s, per: from}, or without per for one rate for all", text)
}

// over parses one limit, and fills in its defaults.
func (p place) over(key string, n *node) Over {
	o := Over{Pos: n.Pos}
	if n.Kind == yamltree.Word {
		p.errorf(n.Pos, "%s must be a mapping, got %s", key, n).Hint = shortRateHint(key, n.Text)
		return o
	}
	form, before := overForm{over: &o}, len(p.r.errs)
	keys := overKeys
	if key == "over" {
		keys = ruleOverKeys
	}
	readKeys(p, key, n, keys, &form)
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

// readBurst parses a burst.
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

// maxRefill is the longest time in which a used-up burst may become available again.
const maxRefill = 30 * 24 * time.Hour

// burst sets the burst of the limit o, whose node is n. A given burst is used as it is. The default is the amount that the rate allows in a second,
// but at least a few packets, because even sources with a low rate send several packets at once.
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

// usualBurst returns the default burst of a limit.
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
