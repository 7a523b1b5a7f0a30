// SPDX-License-Identifier: Apache-2.0

// This file is the experiment sets: lookups of sources in lists of up to ten million addresses.

package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// runSets measures the cost of finding a source in a list of addresses, and the cost of the list itself.
func runSets(ctx context.Context, s *rig.Session) error {
	sizes := []int{1_000, 100_000, 1_000_000, 10_000_000}
	sizes = report.Choice(s.Quick, sizes[1:2], sizes)
	sizes = report.Choice(s.Sizes != nil, s.Sizes, sizes)
	measure := func(l *rig.List) error { return measureList(ctx, s, l) }
	if err := eachList(s, sizes, measure); err != nil || s.List != "" {
		return err
	}
	return measure(rig.RandomPrefixes(min(v6Size, slices.Max(sizes))))
}

// v6Size is the number of IPv6 prefixes of the IPv6 table.
const v6Size = 1_000_000

// goals contains Floodwall's goals with random IPv4 addresses: shares of the smallest program's rate for listed and for unlisted sources, seconds to
// apply the text file, and bytes of kernel memory; 0: no goal.
type goals struct{ listed, unlisted, seconds, bytes float64 }

var goalsBySize = map[string]goals{
	"n=1000000":  {0.65, 0.80, 0.35, 12e6},
	"n=10000000": {0.50, 0.75, 2.5, 100e6},
}

// setsTool is a tool that holds a list.
type setsTool struct {
	name, label string
	slow        bool // it takes minutes for 10 million addresses
	load        func(context.Context, *Builder) (rig.Loaded, error)
}

var setsAllTools = []setsTool{
	{"floodwall", "floodwall", false, LoadFloodwall},
	{"bpf-hash", "BPF hash map, a program with nothing else", false, loadHash},
	{"bpf-lpm", "BPF LPM trie, a program with nothing else", true, loadTrie},
	{"ipset", "ipset, iptables raw", true, loadIpset},
	{"nft/ingress", "nft set, ingress hook", true, loadNft(rig.NftIngress)},
	{"nft/raw", "nft set, raw prerouting", true, loadNft(rig.NftRaw)},
}

// Builder makes the tables of one list.
type Builder struct {
	*rig.Builder
	List *rig.List
	load report.Table
}

// measureList makes the two tables of a list: packet rates, and the cost of loading.
func measureList(ctx context.Context, s *rig.Session, l *rig.List) error {
	return rig.With(ctx, s, func(in *rig.Builder) error {
		b := &Builder{Builder: in, List: l}
		b.Flow = rig.Flood(l.Unlisted)
		b.Table.Title = "sets: " + l.Label + "; 64-byte UDP packets"
		if l.V6 {
			b.Table.Title = "sets: " + l.Label + "; 66-byte UDP packets"
		}
		b.load = report.Table{
			Title: "sets: loading " + l.Label,
			Head:  []string{"", "seconds", "MB in the kernel", "bytes each", ""},
			Notes: []string{
				"Seconds: floodwall from the policy's text file to enforcement (what `floodwall apply` takes); BPF maps from",
				"addresses in memory, by batches; ipset and nft with their own tools, from scripts in their own format.",
			},
		}
		if l.Note != "" {
			b.Table.Notes = append(b.Table.Notes, l.Note)
		}
		return b.run(ctx)
	})
}

func (b *Builder) run(ctx context.Context) error {
	if err := b.Limits(); err != nil {
		return err
	}
	if err := b.leastLine(); err != nil {
		return err
	}
	defer b.publishLoad() // publishes all figures so far, also when the rest cannot be measured
	for _, t := range setsAllTools {
		if err := b.tool(ctx, t); err != nil {
			return err
		}
	}
	return b.Builder.Measure(ctx)
}

func (b *Builder) publishLoad() {
	if len(b.load.Rows) > 0 {
		b.Outcome.Tables = append(b.Outcome.Tables, &b.load)
	}
}

// tool loads the list with a tool and adds the rows.
func (b *Builder) tool(ctx context.Context, t setsTool) error {
	n, prefix := len(b.List.Prefixes), b.List.Name+"/"+t.name
	if !b.Wants(prefix) && !b.Wants(prefix+"/listed") && !b.Wants(prefix+"/unlisted") {
		return nil // skips tools that nobody wants, as some take a minute to load the list
	}
	var got rig.Loaded
	err := error(&rig.Missing{Reason: "takes minutes: measured with --all"})
	if !t.slow || n < rig.SlowSize || b.All {
		b.Steps.Show("loading %s: %s", b.List.Label, t.label)
		got, err = t.load(ctx, b)
	}
	reason, err := rig.Tolerate(err)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", t.label, b.List.Label, err)
	}
	bars := goals{}
	if t.name == "floodwall" {
		bars = goalsBySize[b.List.Name]
	}
	b.loadRow(t, got, reason, bars)
	if reason != "" {
		b.Add(&rig.Rate{Name: prefix, Label: t.label, Missing: reason})
		return nil
	}
	b.Add(&rig.Rate{
		Name: prefix + "/listed", Label: t.label + ": listed sources", Subject: got.Subject,
		Share: bars.listed, Flood: "listed", Flows: []lab.Flow{rig.Flood(b.List.Listed)}, Extra: got.Metrics(),
	})
	b.Add(&rig.Rate{
		Name: prefix + "/unlisted", Label: t.label + ": unlisted sources", Subject: got.Subject,
		Share: bars.unlisted,
	})
	return nil
}

// loadRow adds the tool's row to the table of loading. The parameter reason tells why the list is not loaded; "" if it is.
func (b *Builder) loadRow(t setsTool, g rig.Loaded, reason string, bars goals) {
	g.Note += reason
	b.load.AddRow(g.Cells(t.label, len(b.List.Prefixes))...)
	name := fmt.Sprintf("%s/%s/%s", b.Outcome.Name, b.List.Name, t.name)
	if bars.seconds > 0 && len(g.Seconds) > 0 {
		b.Outcome.Bars = append(b.Outcome.Bars, report.AtMost(name+" seconds to load", g.Seconds.Median(), bars.seconds))
	}
	if bars.bytes > 0 && g.Bytes > 0 {
		b.Outcome.Bars = append(b.Outcome.Bars, report.AtMost(name+" MB", g.Bytes/1e6, bars.bytes/1e6))
	}
}
