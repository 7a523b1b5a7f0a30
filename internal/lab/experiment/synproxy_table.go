package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// goal is what Floodwall must reach with a flood: a share of the limit, and times the rival's rate.
type goal struct {
	flood        *Flood
	limit        string // name of the case
	share, times float64
}

var synproxyGoals = []goal{{SYNs, limitTX, 0.60, 8}, {ACKs, limitDrop, 0.75, 7}}

// notes are the choices made.
func (b *synproxyBuilder) notes() []string {
	return []string{
		fmt.Sprintf("Talk: netdev 0x15, 2021, one core of a Xeon E5-2620 v4 with a ConnectX-5. Here: veth; CPU %d has the receive threads of", rig.ReceiverCPU),
		fmt.Sprintf("the host that is flooded and, after them, nginx; CPU %d has the attacker and the clients. Sources, ports and numbers are", rig.SourceCPU),
		"random; SYNs have Linux's options (74 bytes), ACKs timestamps (66 bytes). SYN-ACKs are counted where they arrive, at",
		"the attacker. An ACK is dropped that the host took and did not answer. The most is that at whatever rate of the flood.",
		"Able: the same for each second that the receive thread ran, which waits for the attacker when it is fast. The bars were",
		"set with an attacker who kept an empty program's thread a third busy: by what it is able to, they are harder.",
		"Kernel SYNPROXY is the talk's setup: SYNs untracked in raw, SYNPROXY for what is invalid or untracked, invalid dropped,",
		"tcp_loose=0. Floodwall protects the port at any rate (`when: always`).",
		"As much work as Floodwall's: the yardstick of `bench compare`, which takes about as long when the frame is in the cache.",
		"Here it is in the attacker's core: who does little goes on with the next frame meanwhile, who does more waits for it.",
		"An empty XDP_TX sends the attacker as much back, whose core has to take it: no row is a bound of the others, and one may have more.",
		fmt.Sprintf("Medians of %d rounds of %v, in which the rows take turns.", b.Rounds, b.Window),
	}
}

// publish adds the tables, the curves, the results and the bars to the outcome.
func (b *synproxyBuilder) publish() {
	for _, bar := range synproxyGoals {
		b.Outcome.Tables = append(b.Outcome.Tables, b.floodTable(bar), b.floodChart(bar.flood))
		b.Outcome.Ranked = append(b.Outcome.Ranked, b.ranking(bar))
	}
	b.Outcome.Tables = append(b.Outcome.Tables, b.clientsTable(), b.clientsChart())
	b.Outcome.Claims = b.claims()
}

// find returns the case of that name, nil when there is none.
func (b *synproxyBuilder) find(name string) *synproxyTestCase {
	if i := slices.IndexFunc(b.cases, func(c *synproxyTestCase) bool { return c.name == name }); i >= 0 {
		return b.cases[i]
	}
	return nil
}

func (b *synproxyBuilder) floodName(c *synproxyTestCase, f *Flood) string {
	return b.Outcome.Name + "/" + c.floodRow(f)
}

// floodRow is what the row of a case with a flood is called.
func (c *synproxyTestCase) floodRow(f *Flood) string { return f.name + "/" + c.name }

// floodTable is the most that each case does with a flood.
func (b *synproxyBuilder) floodTable(bar goal) *report.Table {
	t := &report.Table{
		Title: "synproxy: " + bar.flood.label + ", millions of " + bar.flood.figure,
		Head:  []string{"", "talk", "most", "min .. max", "of " + bar.limit, "bar", "x SYNPROXY", "bar", "able", "of " + bar.limit, "bar", ""},
		Notes: b.notes(),
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
				b.Outcome.Bars = append(b.Outcome.Bars, s.bar)
			}
		}
		b.Outcome.Results = append(b.Outcome.Results, result)
		t.AddRow(cells...)
		curve.remark(t)
	}
	return t
}

// ranking is the most that each case does with a flood.
func (b *synproxyBuilder) ranking(bar goal) report.Ranking {
	r := report.Ranking{Title: "synproxy: " + bar.flood.label, Unit: "millions of " + bar.flood.figure}
	for _, c := range b.cases {
		if curve := c.floods[bar.flood]; curve != nil {
			r.Add(c.label, curve.most, 1e6, curve.unsteady())
			if c.name == bar.limit && len(r.Rows) > 0 {
				r.Limit = c.label
			}
		}
	}
	return r
}

// most is the row of a case without its shares, as text and for programs.
func (c *synproxyTestCase) most(f *Flood, name string) (cells []string, r lab.Result) {
	curve := c.floods[f]
	cells, r = make([]string, 12), lab.Result{Name: name, Runs: len(curve.most), Note: c.missing}
	if talk := c.article[f]; talk > 0 {
		cells[1] = fmt.Sprintf("%.2f", talk)
	}
	if len(curve.most) > 0 {
		cells[2] = fmt.Sprintf("%.2f", curve.most.Median()/1e6)
		cells[3] = fmt.Sprintf("%.2f .. %.2f", slices.Min(curve.most)/1e6, slices.Max(curve.most)/1e6)
		cells[8] = fmt.Sprintf("%.2f", curve.able.Median()/1e6)
		millions := func(pps float64) float64 { return pps / 1e6 }
		r.Metrics = []lab.Metric{curve.most.Each(millions).Metric("Mpps"), curve.able.Each(millions).Metric("able-Mpps")}
		r.Note = curve.marks()
	}
	cells[0], cells[11] = c.label, r.Note
	return cells, r
}

// ratio is a case's rate by another's.
type ratio struct {
	report.Samples // empty: one of them was not measured
	unit           string
	bar            *report.Bar // nil: none is asked for
}

// floodShares are a case's share of the limit, how many times SYNPROXY's rate it has, and the share of what the limit is
// able to. How many times SYNPROXY's a limit has is the most that anything can have here.
func (b *synproxyBuilder) floodShares(c *synproxyTestCase, bar goal) []ratio {
	most := func(curve *floodCurve) report.Samples { return curve.most }
	able := func(curve *floodCurve) report.Samples { return curve.able }
	share := func(unit, what, other string, of func(*floodCurve) report.Samples, bound float64) ratio {
		s := ratio{unit: unit}
		o := b.find(other)
		if o == nil || o == c || o.floods[bar.flood] == nil {
			return s
		}
		mine, its := of(c.floods[bar.flood]), of(o.floods[bar.flood])
		if !(mine.Median() > 0) || !(its.Median() > 0) {
			return s
		}
		s.Samples = mine.By(its)
		if c.rival != "" {
			s.bar = report.AtLeast(b.floodName(c, bar.flood)+what+other, s.Median(), bound)
		}
		return s
	}
	rival := cmp.Or(c.rival, report.Choice(c.limit != nil, synproxyAt, ""))
	return []ratio{
		share("of-limit", " of ", bar.limit, most, bar.share),
		share("x-rival", " x ", rival, most, bar.times),
		share("able-of-limit", " able of ", bar.limit, able, bar.share),
	}
}

// put writes the share to two cells, and to the result.
func (s *ratio) put(cells []string, r *lab.Result) {
	if len(s.Samples) == 0 {
		return
	}
	cells[0] = fmt.Sprintf("%.2f", s.Median())
	if s.bar != nil {
		cells[1] = s.bar.String()
	}
	r.Metrics = append(r.Metrics, s.Metric(s.unit))
}

// unsteady reports whether the figures are doubtful.
func (c *floodCurve) unsteady() bool { return c.disturbed > 0 || c.able.Unsteady() }

// fromSource reports whether most rounds say how fast the attacker is, not the receive thread.
func (c *floodCurve) fromSource() bool { return 2*c.starved > len(c.most) }

// marks are short signs that remark explains.
func (c *floodCurve) marks() string {
	return report.Choice(c.unsteady(), "~", "") + report.Choice(c.fromSource(), "^", "")
}

// remark explains the marks.
func (c *floodCurve) remark(t *report.Table) {
	if c.unsteady() {
		t.AddNote("~ unsteady: others had the receiving CPU, or the rounds differ by more than %.0f%%.", 100*report.UnsteadySpread)
	}
	if c.fromSource() {
		t.AddNote("^ the attacker, with whom the answers arrive, was slower than the receive thread: a lower bound, see able.")
	}
}

// floodChart is what each case does with a flood, over its rate.
func (b *synproxyBuilder) floodChart(f *Flood) *report.Table {
	var curves []report.Curve
	for _, c := range b.cases {
		curve := c.floods[f]
		if curve == nil || len(curve.most) == 0 {
			continue
		}
		one := report.Curve{Name: b.floodName(c, f), Chart: f.label, Label: c.label, X: "pps", Y: f.figure}
		for i, pps := range floodRates(b.Session) {
			one.Points = append(one.Points, [2]float64{pps, curve.at[i].Median()})
		}
		curves = append(curves, one)
	}
	b.Outcome.Curves = append(b.Outcome.Curves, curves...)
	return report.CurveTable("synproxy: thousands of "+f.figure+" over the flood's rate", rateHead(floodRates(b.Session)), curves, 1e3)
}

// rateHead is flood rates as heads of columns.
func rateHead(rates []float64) (head []string) {
	for _, pps := range rates {
		head = append(head, report.Choice(pps == 0, "no flood", strconv.FormatFloat(pps/1e6, 'f', -1, 64)+" Mpps"))
	}
	return head
}
