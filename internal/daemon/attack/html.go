// SPDX-License-Identifier: Apache-2.0

package attack

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/text/wording"
)

//go:embed report.css
var style string

// page is a report as one HTML page without external resources. It does not use html/template: see usage in cmd/internal/cli.
type page struct{ strings.Builder }

// add writes constant markup. Each value is escaped, and replaces a verb in the markup.
func (p *page) add(markup string, values ...any) {
	for i, v := range values {
		values[i] = html.EscapeString(fmt.Sprint(v))
	}
	fmt.Fprintf(p, markup+"\n", values...)
}

// table writes a table. A title that begins with > is the title of a column of numbers.
func (p *page) table(columns []string, rows [][]any) {
	cell := func(tag string, i int, v any) {
		class := ""
		if columns[i][0] == '>' {
			class = ` class="n"`
		}
		p.add("<"+tag+class+">%s</"+tag+">", v)
	}
	p.add(`<div class="scroll"><table><thead><tr>`)
	for i, title := range columns {
		cell("th", i, strings.TrimPrefix(title, ">"))
	}
	p.add(`</tr></thead>`)
	for _, row := range rows {
		p.add("<tr>")
		for i, v := range row {
			cell("td", i, v)
		}
		p.add("</tr>")
	}
	p.add("</table></div>")
}

// WriteHTML writes the report as one HTML page without external resources.
func (r *Report) WriteHTML(out io.Writer) error {
	p := &page{}
	p.add(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attack %s</title>
<style>`, r.ID)
	p.WriteString(style)
	p.add("</style>\n</head>\n<body>")
	r.facts(p)
	r.decided(p)
	if r.Samples != nil {
		sources(p, r.Samples)
	}
	if r.Suggestion != nil {
		r.Suggestion.proposed(p)
	}
	p.add("</body>\n</html>")
	_, err := io.WriteString(out, p.String())
	return err
}

// facts writes the facts of the attack.
func (r *Report) facts(p *page) {
	var kinds []string
	for _, v := range r.Vectors {
		kinds = append(kinds, v.Name)
	}
	title := strings.Join(kinds, ", ")
	if title == "" {
		title = "Attack of unknown kind"
	}
	p.add("<h1>%s</h1>\n<p>Attack %s</p>", title, r.ID)
	if r.Note != "" {
		p.add("<p><strong>Note:</strong> %s.</p>", r.Note)
	}
	ended := "it goes on"
	if r.Ended != nil {
		ended = fmt.Sprintf("%s, after %v", when(*r.Ended), r.Lasted())
	}
	p.add(`<table class="facts">`)
	for _, row := range [][2]string{
		{"Began", when(r.Started)}, {"Ended", ended},
		{"Peak", fmt.Sprintf("%s packets/s, %s", wording.Rate(r.Peak.Packets), strings.TrimSuffix(wording.Bytes(uint64(r.Peak.Bits)), "B")+"bit/s")},
		{"Usual", fmt.Sprintf("%s packets/s; more than %s %s is an attack", wording.Rate(r.Usual), wording.Rate(r.Bound), r.Place())},
		{"Dropped", amounts(r.Dropped)}, {"Passed", amounts(r.Passed) + ", legitimate ones included"},
		{"Policy", fmt.Sprintf("%s, generation %d, %s on %s", r.Policy, r.Generation, r.Target, strings.Join(r.Devices, " "))},
		{"Mode", r.PlacesText(when)},
	} {
		if row[1] != "" {
			p.add(`<tr><th scope="row">%s</th><td>%s</td></tr>`, row[0], row[1])
		}
	}
	p.add("</table>")
	r.judged(p)
	p.add("<h2>Kinds of packets</h2>")
	if len(r.Vectors) == 0 {
		p.add("<p>No samples.</p>")
		return
	}
	var rows [][]any
	for _, v := range r.Vectors {
		rows = append(rows, []any{v.Name, percent(v.Share), deviation(v.Error)})
	}
	p.table([]string{"Kind", ">Share", ">Error"}, rows)
}

// judged writes the attacked services, and the facts for the verdict on each.
func (r *Report) judged(p *page) {
	if len(r.Parts) > 0 {
		p.add("<h2>Why it is an attack</h2>")
		var rows [][]any
		for _, part := range r.Parts {
			answered := "not known"
			if part.Answered != nil {
				answered = percent(*part.Answered)
			}
			rows = append(rows, []any{part.At, part.Verdict, wording.Rate(part.Packets), wording.Rate(part.Usual), answered, percent(part.Familiar)})
		}
		p.table([]string{"At", "Verdict", ">Packets/s", ">Usual", ">Answered", ">From no strangers"}, rows)
	}
	if t := r.Times.Text(); t != "" {
		p.add("<p>After its first packet: %s.</p>", t)
	}
	if r.NoRule != "" {
		p.add("<p><strong>No rule is added:</strong> %s.</p>", r.NoRule)
	}
	for _, a := range r.Advice {
		p.add("<p><strong>Advice:</strong> %s.</p>", a)
	}
}

// decided writes the decisions of each rule, and the rules that were added.
func (r *Report) decided(p *page) {
	reasons := func(first string, list []Reason) {
		var rows [][]any
		for _, d := range list {
			rows = append(rows, []any{d.Name, d.Verdict, d.Stage, wording.Count(d.Packets), wording.Bytes(d.Bytes)})
		}
		p.table([]string{first, "Verdict", "Stage", ">Packets", ">Bytes"}, rows)
	}
	p.add("<h2>What decided</h2>")
	reasons("Rule, check or default", r.Reasons)
	if len(r.Outcomes) > 0 {
		p.add("<h2>Protected services</h2>\n<p>Rules and the default count these packets, too.</p>")
		reasons("Outcome", r.Outcomes)
	}
	if len(r.Steps) == 0 {
		return
	}
	p.add(`<h2>Automatic rules</h2>
<div class="scroll"><table>
<thead><tr><th>Time</th><th>Rule</th><th>State</th><th>Reason</th></tr></thead>`)
	for _, s := range r.Steps {
		p.add(`<tr><td class="w">%s</td><td class="w">%s</td><td class="w">%s</td><td>%s`, s.Time.UTC().Format(time.TimeOnly), s.Rule, s.Did, s.Why)
		if s.Text != "" && s.Did == Observes {
			p.add("<br><code>%s</code>", s.Text)
		}
		p.add("</td></tr>")
	}
	p.add("</table></div>")
}

// sources writes the most frequent sources and field values of the samples.
func sources(p *page, s *operate.Samples) {
	p.add("<h2>Sources</h2>\n<p>From %s samples, 1 in %s. Addresses may be forged.</p>", wording.Count(s.Packets), wording.Count(int(s.OneIn)))
	rows := func(list []operate.Talker, dropped bool) (rows [][]any) {
		for _, k := range list {
			row := []any{k.Key, wording.Rate(k.Packets), percent(k.Share), deviation(k.Error)}
			share := ""
			if k.Dropped != nil {
				share = fmt.Sprintf("%.0f%%", 100**k.Dropped)
			}
			if dropped {
				row = append(row, share)
			}
			rows = append(rows, row)
		}
		return rows
	}
	p.table([]string{"From", ">Packets/s", ">Share", ">Error", ">Dropped"}, rows(s.Sources, true))
	p.add("<h2>Destinations</h2>")
	p.table([]string{"To", ">Packets/s", ">Share", ">Error"}, rows(s.Destinations, false))
}

// proposed writes the suggested rules.
func (s *Suggestion) proposed(p *page) {
	known := "No legitimate traffic was known: look at each rule."
	if s.Baseline > 0 {
		known = fmt.Sprintf("They were compared with %s samples of legitimate traffic.", wording.Count(s.Baseline))
	}
	p.add("<h2>Suggested rules</h2>\n<p>Found %s. Remove them by %s.\n%s</p>", when(s.Found), when(s.Expires), known)
	for _, rule := range s.Rules {
		harm := ""
		if h := rule.Collateral; h != nil {
			harm = fmt.Sprintf(", and %s of %s legitimate samples", wording.Count(h.Packets), wording.Count(h.Of))
			if h.Senders > 0 {
				harm += fmt.Sprintf(", from %s of %s senders", wording.Count(h.Senders), wording.Count(h.OfSenders))
			}
		}
		p.add("<pre><code>- %s</code></pre>\n<p>It matches %s of what passed%s.</p>", rule.Text, percent(rule.Coverage.Part()), harm)
	}
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func amounts(a operate.Amount) string {
	return wording.Count(a.Packets) + " packets, " + wording.Bytes(a.Bytes)
}

// deviation returns the text of an error, which is in percent of the figure.
func deviation(v float64) string { return fmt.Sprintf("±%.0f%%", min(v, 100)) }

// percent returns the text of a share in percent. Small shares get more digits.
func percent(share float64) string {
	if share > 0 && share < 0.001 {
		return fmt.Sprintf("%.3f%%", 100*share)
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}
