package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/text/display"
)

// Part is a table of top under its title.
type Part struct {
	title string
	*display.Table
}

// Lines are the title and the rows under it.
func (p Part) Lines() []string {
	if p.Len() == 0 {
		return []string{p.title + ": none"}
	}
	return append([]string{p.title}, p.Table.Lines()...)
}

// Head says what runs, and what passes and is dropped.
func Head(t *operate.Top) []string {
	rates := display.NewTable("", ">packets/s", ">bits/s")
	rates.Row("passed", display.Rate(t.Passed.Packets), display.Rate(t.Passed.Bits))
	rates.Row("dropped", display.Rate(t.Dropped.Packets), display.Rate(t.Dropped.Bits))
	name := fmt.Sprintf("%s, generation %d, %s on %s, over %.1f s", t.Policy, t.Generation, t.Target, strings.Join(t.Devices, ", "), t.Seconds)
	return append([]string{display.Printable(name)}, rates.Lines()...)
}

// Reasons is the table of rules, checks and the default.
func Reasons(t *operate.Top) Part {
	p := Part{"rules, checks and the default", display.NewTable(">packets/s", ">bits/s", "verdict", "stage", "reason")}
	for _, r := range t.Reasons {
		verdict := r.Verdict
		if r.Observe {
			verdict = "(" + verdict + ")"
		}
		p.Row(display.Rate(r.Packets), display.Rate(r.Bits), verdict, r.Stage, r.Name)
	}
	return p
}

// SampleParts are tables of who and what is in the samples.
func SampleParts(t *operate.Top) (parts []Part) {
	s := t.Samples
	if s == nil {
		return nil
	}
	from := "past XDP"
	if len(s.Verdicts) > 0 {
		from = "to XDP"
	}
	of := fmt.Sprintf(" of what comes %s, by %s", from, display.Things(s.Packets, "sample", "samples"))
	if s.OneIn > 1 {
		of += fmt.Sprintf(", 1 in %s", display.Count(int(s.OneIn)))
	}
	add := func(title, head string, list []operate.Talker) {
		columns := []string{">packets/s", ">share", ">error", head}
		if len(s.Verdicts) > 0 {
			columns = slices.Insert(columns, 3, ">dropped")
		}
		p := Part{title, display.NewTable(columns...)}
		for _, k := range list {
			row := []string{display.Rate(k.Packets), fmt.Sprintf("%.1f%%", 100*k.Share), fmt.Sprintf("±%.0f%%", min(k.Error, 100)), k.Key}
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
