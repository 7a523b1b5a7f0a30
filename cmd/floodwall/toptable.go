package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/operate"
)

// topPart is a table of top under its title.
type topPart struct {
	title string
	*table
}

func (p topPart) lines() []string {
	if len(p.rows) == 0 {
		return []string{p.title + ": none"}
	}
	return append([]string{p.title}, p.table.lines()...)
}

// topHead says what runs, and what passes and is dropped.
func topHead(t *operate.Top) []string {
	rates := newTable("", ">packets/s", ">bits/s")
	rates.row("passed", rateText(t.Passed.Packets), rateText(t.Passed.Bits))
	rates.row("dropped", rateText(t.Dropped.Packets), rateText(t.Dropped.Bits))
	name := fmt.Sprintf("%s, generation %d, %s on %s, over %.1f s", t.Policy, t.Generation, t.Target, strings.Join(t.Devices, ", "), t.Seconds)
	return append([]string{printable(name)}, rates.lines()...)
}

func reasonsPart(t *operate.Top) topPart {
	p := topPart{"rules, checks and the default", newTable(">packets/s", ">bits/s", "verdict", "stage", "reason")}
	for _, r := range t.Reasons {
		verdict := r.Verdict
		if r.Observe {
			verdict = "(" + verdict + ")"
		}
		p.row(rateText(r.Packets), rateText(r.Bits), verdict, r.Stage, r.Name)
	}
	return p
}

// samplesParts are tables of who and what is in the samples.
func samplesParts(t *operate.Top) (parts []topPart) {
	s := t.Samples
	if s == nil {
		return nil
	}
	from := "past XDP"
	if len(s.Verdicts) > 0 {
		from = "to XDP"
	}
	of := fmt.Sprintf(" of what comes %s, by %s", from, things(s.Packets, "sample", "samples"))
	if s.OneIn > 1 {
		of += fmt.Sprintf(", 1 in %s", count(int(s.OneIn)))
	}
	add := func(title, head string, list []operate.Talker) {
		columns := []string{">packets/s", ">share", ">error", head}
		if len(s.Verdicts) > 0 {
			columns = slices.Insert(columns, 3, ">dropped")
		}
		p := topPart{title, newTable(columns...)}
		for _, k := range list {
			row := []string{rateText(k.Packets), fmt.Sprintf("%.1f%%", 100*k.Share), fmt.Sprintf("±%.0f%%", min(k.Error, 100)), k.Key}
			if k.Dropped != nil {
				row = slices.Insert(row, 3, fmt.Sprintf("%.0f%%", 100**k.Dropped))
			}
			p.row(row...)
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

// rateText writes a rate with three digits at least: 12,345, 1.23M, 4.56G.
func rateText(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}} {
		if v >= unit.size {
			return fmt.Sprintf("%.2f%s", v/unit.size, unit.name)
		}
	}
	if v > 0 && v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return count(int(math.Round(v)))
}
