// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// picture is the content of a live demonstration at one moment.
type picture struct {
	width, height int
	policy, note  string
	page          string // the address of the page; "": there is no page
	phase         int    // -1 before the first
	totals        [phases]total
	history       []Moment // the moments of all phases
	ended         bool
	color         bool // colors and other styles
}

// total has the numbers of requests of a phase so far.
type total struct{ ok, failed uint64 }

func newPicture(color bool, width int) *picture {
	return &picture{phase: -1, width: width, height: 24, color: color}
}

func (p *picture) render(s style, text string) string {
	if !p.color {
		return text
	}
	return s.render(text)
}

func (p *picture) begin(number int) {
	p.phase, p.note = number, ""
}

func (p *picture) add(m Moment) {
	p.totals[m.Phase].ok += m.OK
	p.totals[m.Phase].failed += m.Failed
	p.history = append(p.history, m)
}

// View returns the picture as text: the phases, the clients and the server. If there is space below, it also shows the policy. After the policy is
// applied, it shows the drops by reason instead.
func (p *picture) View() string {
	if p.ended {
		return ""
	}
	title := p.render(bold, "A web server under a flood")
	if p.note != "" {
		title += "   " + p.note
	}
	page := ""
	if p.page != "" {
		page = p.render(faint, "the daemon's page, for a browser: ") + p.page
	}
	lines := append([]string{title, page}, p.phaseLines()...)
	lines = append(lines, "")
	lines = append(lines, p.nowLines()...)
	lines = append(lines, "")
	lines = append(lines, p.below()...)
	lines = lines[:min(len(lines), max(1, p.height-1))]
	for i, line := range lines {
		lines[i] = clip(line, p.width)
	}
	return strings.Join(lines, "\n") + "\n"
}

func (p *picture) phaseLines() (lines []string) {
	for i, name := range phaseNames {
		t := p.totals[i]
		line := fmt.Sprintf("%d  %-12s", i+1, name)
		switch {
		case i > p.phase:
			line = p.render(faint, "  "+line)
		case i == p.phase:
			line = "> " + line + p.score(t)
		default:
			line = "  " + line + p.score(t)
		}
		lines = append(lines, line)
	}
	return lines
}

// score returns the number of answered requests. It is green for a good result, and red for a bad one.
func (p *picture) score(t total) string {
	if t.ok+t.failed == 0 {
		return ""
	}
	look := green
	if t.failed*100 > t.ok+t.failed {
		look = red
	}
	share := float64(t.ok) / float64(t.ok+t.failed)
	return p.render(look, fmt.Sprintf("%7s answered %7s failed %7s", wording.Count(t.ok), wording.Count(t.failed), percent(share)))
}

// labelWidth is the width in columns of the labels in front of the current values.
const labelWidth = 15

func (p *picture) nowLines() []string {
	line := func(label, value string) string {
		return p.render(faint, fmt.Sprintf("%-*s", labelWidth, label)) + value
	}
	if len(p.history) == 0 {
		return []string{p.render(faint, "no requests yet")}
	}
	m := p.history[len(p.history)-1]
	seconds := m.Interval.Seconds()
	return []string{
		line("answers", p.sparkline(p.width-labelWidth-8)+fmt.Sprintf(" %3.0f/s", float64(m.OK)/seconds)),
		line("slowest", millis(m.Slowest)),
		line("flood", fmt.Sprintf("%s sent, %.2f taken in, %.2f lost", mpps(m.Traffic.Sent), m.Traffic.Received/1e6, m.Traffic.Lost/1e6)),
		line("receiving CPU", bar(m.Traffic.Busy, min(30, p.width-labelWidth-8))+fmt.Sprintf(" %3.0f%%", m.Traffic.Busy*100)),
	}
}

// below returns the lines of the policy until the policy is applied, and then the reasons of drops.
func (p *picture) below() (lines []string) {
	if p.phase < protected || len(p.history) == 0 {
		lines = append(lines, p.render(faint, policyFile+", not applied yet"))
		for line := range strings.Lines(p.policy) {
			lines = append(lines, "  "+strings.TrimRight(line, "\n"))
		}
		return lines
	}
	m := p.history[len(p.history)-1]
	lines = append(lines, p.render(faint, "dropped by Floodwall")+fmt.Sprintf("  %s", mpps(m.Traffic.Dropped)))
	return append(lines, strings.Split(strings.TrimRight(dropLines(m.Drops), "\n"), "\n")...)
}

// levels are the characters for the heights of a sparkline's columns.
var levels = []rune(" ▁▂▃▄▅▆▇█")

// sparkline draws the answers per second of the last moments, with one column each. A full column means that all requests were answered.
func (p *picture) sparkline(columns int) string {
	recent := p.history[max(0, len(p.history)-max(1, columns)):]
	var out strings.Builder
	for _, m := range recent {
		height := min(1, float64(m.OK)/m.Interval.Seconds()/m.Asked) * float64(len(levels)-1)
		look := green
		if m.Failed > m.OK || m.OK == 0 {
			look, height = red, max(height, 1)
		}
		out.WriteString(p.render(look, string(levels[int(height+0.5)])))
	}
	return out.String()
}

// bar returns a bar for a share from 0 to 1.
func bar(share float64, columns int) string {
	columns = max(columns, 1)
	full := min(columns, int(share*float64(columns)+0.5))
	return strings.Repeat("█", full) + strings.Repeat("░", columns-full)
}
