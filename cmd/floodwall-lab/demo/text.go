// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// mpps returns a rate in packets per second as text.
func mpps(rate float64) string { return fmt.Sprintf("%.2f Mpps", rate/1e6) }

// percent returns a share as text. A share below 1 never appears as 100%.
func percent(share float64) string {
	tenths := int(share*1000 + 0.5)
	if tenths == 1000 && share < 1 {
		tenths = 999
	}
	return fmt.Sprintf("%d.%d%%", tenths/10, tenths%10)
}

// millis returns the time of an answer as text, or "-" if there was no answer.
func millis(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
}

// Text returns the summary for people. It has the given width, but at least 60 columns.
func (s *Summary) Text(width int) string {
	var out strings.Builder
	for _, row := range s.rows() {
		fmt.Fprintf(&out, "%-24s", row.label)
		for i := range s.Phases {
			fmt.Fprintf(&out, "%12s", row.cell(&s.Phases[i]))
		}
		out.WriteString("\n")
	}
	if len(s.Drops) > 0 {
		fmt.Fprintf(&out, "\nDropped by Floodwall, by reason\n%s%s", dropLines(s.Drops), wrap(s.sums(), max(width, 60)))
	}
	if s.Attack != nil {
		out.WriteString("\n" + s.attackText(max(width, 60)))
	}
	if len(s.Downloads) > 0 {
		out.WriteString("\n" + s.downloadText(max(width, 60)))
	}
	if s.Trouble() == nil {
		out.WriteString("\n" + wrap(s.Verdict(), max(width, 60)))
	}
	if remarks := s.Remarks(); remarks != "" {
		out.WriteString("\n" + wrap(remarks, max(width, 60)))
	}
	return out.String()
}

// row is a line of the summary's table.
type row struct {
	label string
	cell  func(*Phase) string
}

func (s *Summary) rows() []row {
	return []row{
		{"", func(p *Phase) string { return p.Name }},
		{"requests answered", func(p *Phase) string { return wording.Count(p.Requests.OK) }},
		{"requests failed", func(p *Phase) string { return wording.Count(p.Requests.Failed) }},
		{"answered", func(p *Phase) string { return percent(p.answered()) }},
		{"answers per second", func(p *Phase) string { return fmt.Sprintf("%.1f", p.Requests.Rate) }},
		{"half of them within", func(p *Phase) string { return millis(p.Requests.P50) }},
		{"99% of them within", func(p *Phase) string { return millis(p.Requests.P99) }},
		{"flood sent", func(p *Phase) string { return mpps(p.Traffic.Sent) }},
		{"lost in a full queue", func(p *Phase) string { return mpps(p.Traffic.Lost) }},
		{"taken in", func(p *Phase) string { return mpps(p.Traffic.Received) }},
		{"dropped by Floodwall", func(p *Phase) string { return mpps(p.Traffic.Dropped) }},
		{"CPU spent on receiving", func(p *Phase) string { return fmt.Sprintf("%.0f%%", p.Traffic.Busy*100) }},
	}
}

// sums returns a text with the sum of all dropped packets. It explains why other sums of the summary are smaller.
func (s *Summary) sums() string {
	var all uint64
	for _, d := range s.Drops {
		all += d.Packets
	}
	text := fmt.Sprintf("Together %s packets", wording.Count(all))
	if after := s.Fate.Flood.Dropped + s.Fate.Clients.Dropped; after < all {
		text += fmt.Sprintf(": %s while the command still ran, and %s after it had ended", wording.Count(all-after), wording.Count(after))
	}
	if s.Attack != nil && s.Attack.Dropped.Packets != all {
		text += fmt.Sprintf(". The daemon's report has %s, as it counts whole seconds of the attack", wording.Count(s.Attack.Dropped.Packets))
	}
	return text + "."
}

// topDrops is the number of reasons that are shown.
const topDrops = 5

func dropLines(drops []Drop) string {
	var out strings.Builder
	for _, d := range drops[:min(topDrops, len(drops))] {
		fmt.Fprintf(&out, "  %-20s%14s\n", d.Reason, wording.Count(d.Packets))
	}
	return out.String()
}

// Next returns the commands to try after a demonstration. The parameter name is the name by which the user calls floodwall.
func Next(name string) string {
	var out strings.Builder
	out.WriteString("\nNext, on this host:\n")
	for _, c := range [][2]string{
		{"doctor", "what costs packets here; changes nothing"},
		{"check policy.yaml", "a policy of yours, see README.md; applies nothing"},
		{"apply policy.yaml --confirm 60s", "undone after 60 s without `floodwall confirm`"},
	} {
		fmt.Fprintf(&out, "  %s %-32s # %s\n", name, c[0], c[1])
	}
	return out.String()
}
