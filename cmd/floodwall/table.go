// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// Part is a table in the output of `floodwall top`, with its title.
type Part struct {
	title string
	*wording.Table
}

// Lines returns the title and the rows under it.
func (p Part) Lines() []string {
	if p.Len() == 0 {
		return []string{p.title + ": none"}
	}
	return append([]string{p.title}, p.Table.Lines()...)
}

// Head returns the lines about the running policy and about the rates of passed and dropped packets.
func Head(t *operate.Top) []string {
	rates := wording.NewTable("", ">packets/s", ">bits/s")
	rates.Row("passed", wording.Rate(t.Passed.Packets), wording.Rate(t.Passed.Bits))
	rates.Row("dropped", wording.Rate(t.Dropped.Packets), wording.Rate(t.Dropped.Bits))
	name := fmt.Sprintf("%s, generation %d, %s on %s, over %.1f s", t.Policy, t.Generation, t.Target, strings.Join(t.Devices, ", "), t.Seconds)
	lines := append([]string{wording.Printable(name)}, rates.Lines()...)
	for _, d := range t.Places {
		if d.ByFlood {
			lines = append(lines, fmt.Sprintf("device %s: %s", d.Name, modeText(d)))
		}
	}
	if t.UDP != nil {
		lines = append(lines, clientsLine(t.UDP))
		for _, u := range t.UDP.Services {
			if u.Flood {
				lines = append(lines, fmt.Sprintf("flood at %s: known clients pass first, for %.0f s after it", wording.Printable(u.Service), u.Left))
			}
		}
	}
	if t.ReplyFlows != nil {
		lines = append(lines, flowsLine(t.ReplyFlows))
	}
	return lines
}

// Reasons returns the table of rules, checks and the default.
func Reasons(t *operate.Top) Part {
	p := Part{"rules, checks and the default", wording.NewTable(">packets/s", ">bits/s", "verdict", "stage", "reason")}
	for _, r := range t.Reasons {
		verdict := r.Verdict
		if r.Observe {
			verdict = "(" + verdict + ")"
		}
		p.Row(wording.Rate(r.Packets), wording.Rate(r.Bits), verdict, r.Stage, r.Name)
	}
	return p
}

// SampleParts returns the tables of the most frequent sources and values in the samples.
func SampleParts(t *operate.Top) (parts []Part) {
	s := t.Samples
	if s == nil {
		return nil
	}
	from := "past XDP"
	if len(s.Verdicts) > 0 {
		from = "to XDP"
	}
	of := fmt.Sprintf(" of what comes %s, by %s", from, wording.Things(s.Packets, "sample", "samples"))
	if s.OneIn > 1 {
		of += fmt.Sprintf(", 1 in %s", wording.Count(int(s.OneIn)))
	}
	add := func(title, head string, list []operate.Talker) {
		columns := []string{">packets/s", ">share", ">error", head}
		if len(s.Verdicts) > 0 {
			columns = slices.Insert(columns, 3, ">dropped")
		}
		p := Part{title, wording.NewTable(columns...)}
		for _, k := range list {
			row := []string{wording.Rate(k.Packets), fmt.Sprintf("%.1f%%", 100*k.Share), fmt.Sprintf("±%.0f%%", min(k.Error, 100)), k.Key}
			if k.Dropped != nil {
				row = slices.Insert(row, 3, fmt.Sprintf("%.0f%%", 100**k.Dropped))
			}
			p.Row(row...)
		}
		parts = append(parts, p)
	}
	add("sources"+of, "from", s.Sources)
	add("destinations"+of, "to", s.Destinations)
	for _, f := range []string{"port", "sport", "proto", "flags", "length", "ttl", "country", "asn"} {
		if _, there := s.Fields[f]; !there {
			continue
		}
		add(f+of, f, s.Fields[f])
	}
	return parts
}
