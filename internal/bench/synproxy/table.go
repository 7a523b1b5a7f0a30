package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/floodwall/floodwall/internal/lab"
)

// synBar is what Floodwall must reach with a flood: a share of the limit, and times the rival's rate.
type synBar struct {
	flood        *synFlood
	limit        string // name of the case
	share, times float64
}

var synBars = []synBar{{synOnly, synTX, 0.60, 8}, {ackOnly, synDrop, 0.75, 7}}

// synNotes are the choices made.
func (b *synBuilder) synNotes() []string {
	return []string{
		fmt.Sprintf("Talk: netdev 0x15, 2021, one core of a Xeon E5-2620 v4 with a ConnectX-5. Here: veth; CPU %d has the receive threads of", receiverCPU),
		fmt.Sprintf("the host that is flooded and, after them, nginx; CPU %d has the attacker and the clients. Sources, ports and numbers are", sourceCPU),
		"random; SYNs have Linux's options (74 octets), ACKs timestamps (66 octets). SYN-ACKs are counted where they arrive, at",
		"the attacker. An ACK is dropped that the host took and did not answer. The most is that at whatever rate of the flood.",
		"Able: the same for each second that the receive thread ran, which waits for the attacker when it is fast. The bars were",
		"set with an attacker who kept an empty program's thread a third busy: by what it is able to, they are harder.",
		"Kernel SYNPROXY is the talk's setup: SYNs untracked in raw, SYNPROXY for what is invalid or untracked, invalid dropped,",
		"tcp_loose=0. Floodwall protects the port at any rate (`when: always`).",
		fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns.", b.Rounds, b.Window),
	}
}

// publish adds the tables, the curves, the results and the bars to the outcome.
func (b *synBuilder) publish() {
	for _, bar := range synBars {
		b.outcome.Tables = append(b.outcome.Tables, b.floodTable(bar), b.floodChart(bar.flood))
		b.outcome.Ranked = append(b.outcome.Ranked, b.ranking(bar))
	}
	b.outcome.Tables = append(b.outcome.Tables, b.clientsTable(), b.clientsChart())
	b.outcome.Claims = b.claims()
}

// find returns the case of that name, nil when there is none.
func (b *synBuilder) find(name string) *synCase {
	if i := slices.IndexFunc(b.cases, func(c *synCase) bool { return c.name == name }); i >= 0 {
		return b.cases[i]
	}
	return nil
}

func (b *synBuilder) floodName(c *synCase, f *synFlood) string {
	return b.outcome.Name + "/" + f.name + "/" + c.name
}

// floodTable is the most that each case does with a flood.
func (b *synBuilder) floodTable(bar synBar) *Table {
	t := &Table{
		Title: "synproxy: " + bar.flood.label + ", millions of " + bar.flood.figure,
		Head:  []string{"", "talk", "most", "min .. max", "of " + bar.limit, "bar", "x SYNPROXY", "bar", "able", "of " + bar.limit, "bar", ""},
		Notes: b.synNotes(),
	}
	for _, c := range b.cases {
		curve := c.floods[bar.flood]
		if curve == nil {
			continue
		}
		cells, result := c.most(bar.flood, b.floodName(c, bar.flood))
		for i, s := range b.floodShares(c, bar) {
			s.put(cells[[]int{4, 6, 9}[i]:], &result)
			if s.bar != nil {
				b.outcome.Bars = append(b.outcome.Bars, s.bar)
			}
		}
		b.outcome.Results = append(b.outcome.Results, result)
		t.row(cells...)
		curve.remark(t)
	}
	return t
}

// ranking is the most that each case does with a flood.
func (b *synBuilder) ranking(bar synBar) Ranking {
	r := Ranking{Title: "synproxy: " + bar.flood.label, Unit: "millions of " + bar.flood.figure}
	for _, c := range b.cases {
		if curve := c.floods[bar.flood]; curve != nil {
			r.add(c.label, curve.most, 1e6, curve.unsteady())
			if c.name == bar.limit && len(r.Rows) > 0 {
				r.Limit = c.label
			}
		}
	}
	return r
}

// most is the row of a case without its shares, as text and for programs.
func (c *synCase) most(f *synFlood, name string) (cells []string, r lab.Result) {
	curve := c.floods[f]
	cells, r = make([]string, 12), lab.Result{Name: name, Runs: len(curve.most), Note: c.missing}
	if talk := c.article[f]; talk > 0 {
		cells[1] = fmt.Sprintf("%.2f", talk)
	}
	if len(curve.most) > 0 {
		cells[2] = fmt.Sprintf("%.2f", curve.most.median()/1e6)
		cells[3] = fmt.Sprintf("%.2f .. %.2f", slices.Min(curve.most)/1e6, slices.Max(curve.most)/1e6)
		cells[8] = fmt.Sprintf("%.2f", curve.able.median()/1e6)
		millions := func(pps float64) float64 { return pps / 1e6 }
		r.Metrics = []lab.Metric{curve.most.each(millions).metric("Mpps"), curve.able.each(millions).metric("able-Mpps")}
		r.Note = curve.marks()
	}
	cells[0], cells[11] = c.label, r.Note
	return cells, r
}

// synShare is a case's rate by another's.
type synShare struct {
	series // empty: one of them was not measured
	unit   string
	bar    *Bar // nil: none is asked for
}

// floodShares are a case's share of the limit, how many times SYNPROXY's rate it has, and the share of what the limit is
// able to. How many times SYNPROXY's a limit has is the most that anything can have here.
func (b *synBuilder) floodShares(c *synCase, bar synBar) []synShare {
	most := func(curve *synCurve) series { return curve.most }
	able := func(curve *synCurve) series { return curve.able }
	share := func(unit, what, other string, of func(*synCurve) series, bound float64) synShare {
		s := synShare{unit: unit}
		o := b.find(other)
		if o == nil || o == c || o.floods[bar.flood] == nil {
			return s
		}
		mine, its := of(c.floods[bar.flood]), of(o.floods[bar.flood])
		if !(mine.median() > 0) || !(its.median() > 0) {
			return s
		}
		s.series = mine.by(its)
		if c.rival != "" {
			s.bar = atLeast(b.floodName(c, bar.flood)+what+other, s.median(), bound)
		}
		return s
	}
	rival := cmp.Or(c.rival, choice(c.limit != nil, synproxyAt, ""))
	return []synShare{
		share("of-limit", " of ", bar.limit, most, bar.share),
		share("x-rival", " x ", rival, most, bar.times),
		share("able-of-limit", " able of ", bar.limit, able, bar.share),
	}
}

// put writes the share to two cells, and to the result.
func (s *synShare) put(cells []string, r *lab.Result) {
	if len(s.series) == 0 {
		return
	}
	cells[0] = fmt.Sprintf("%.2f", s.median())
	if s.bar != nil {
		cells[1] = s.bar.String()
	}
	r.Metrics = append(r.Metrics, s.metric(s.unit))
}

// unsteady reports whether the figures are doubtful.
func (c *synCurve) unsteady() bool { return c.disturbed > 0 || c.able.unsteady() }

// fromSource reports whether most rounds say how fast the attacker is, not the receive thread.
func (c *synCurve) fromSource() bool { return 2*c.starved > len(c.most) }

// marks are short signs that remark explains.
func (c *synCurve) marks() string {
	return choice(c.unsteady(), "~", "") + choice(c.fromSource(), "^", "")
}

// remark explains the marks.
func (c *synCurve) remark(t *Table) {
	if c.unsteady() {
		t.note("~ unsteady: others had the receiving CPU, or the rounds differ by more than %.0f%%", 100*unsteadySpread)
	}
	if c.fromSource() {
		t.note("^ the attacker, with whom the answers arrive, was slower than the receive thread: a lower bound, see able")
	}
}

// floodChart is what each case does with a flood, over its rate.
func (b *synBuilder) floodChart(f *synFlood) *Table {
	var curves []Curve
	for _, c := range b.cases {
		curve := c.floods[f]
		if curve == nil || len(curve.most) == 0 {
			continue
		}
		one := Curve{Name: b.floodName(c, f), Chart: f.label, Label: c.label, X: "pps", Y: f.figure}
		for i, pps := range b.synRates() {
			one.Points = append(one.Points, [2]float64{pps, curve.at[i].median()})
		}
		curves = append(curves, one)
	}
	b.outcome.Curves = append(b.outcome.Curves, curves...)
	return curveTable("synproxy: thousands of "+f.figure+" over the flood's rate", rateHead(b.synRates()), curves, 1e3)
}

// rateHead is flood rates as heads of columns.
func rateHead(rates []float64) (head []string) {
	for _, pps := range rates {
		head = append(head, choice(pps == 0, "no flood", strconv.FormatFloat(pps/1e6, 'f', -1, 64)+" Mpps"))
	}
	return head
}
