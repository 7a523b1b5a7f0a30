// This file is the experiment of that name: finding sources in lists of up to ten million addresses.

package experiment

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// runSets measures what it costs to find a source in a list of addresses, and what the list costs.
func runSets(ctx context.Context, s *rig.Session) error {
	for _, prepare := range chosenLists(s) {
		s.Steps.Show("making addresses")
		l, err := prepare()
		if err == nil {
			err = measureList(ctx, s, l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// v6Size is the number of IPv6 prefixes of the IPv6 table.
const v6Size = 1_000_000

// chosenLists makes the lists to measure with, each when its turn comes: the largest need much memory.
func chosenLists(s *rig.Session) (all []func() (*rig.List, error)) {
	if s.List != "" {
		return append(all, func() (*rig.List, error) { return rig.ReadList(s.List) })
	}
	most := 0
	for _, n := range setsListSizes(s) {
		most = max(most, n)
		all = append(all, func() (*rig.List, error) { return rig.RandomHosts(n), nil })
	}
	return append(all, func() (*rig.List, error) { return rig.RandomPrefixes(min(v6Size, most)), nil })
}

// setsListSizes are the sizes of the lists.
func setsListSizes(s *rig.Session) []int {
	if s.Sizes != nil {
		return s.Sizes
	}
	sizes := []int{1_000, 100_000, 1_000_000, 10_000_000}
	return report.Choice(s.Quick, sizes[1:2], sizes)
}

// goals is what Floodwall must reach with random IPv4 addresses: shares of the least program's rate for sources that
// are listed and that are not, seconds to apply the text file, and bytes of kernel memory; 0 where nothing is asked.
type goals struct{ listed, unlisted, seconds, bytes float64 }

var goalsBySize = map[string]goals{
	"n=1000000":  {0.65, 0.80, 0.35, 12e6},
	"n=10000000": {0.50, 0.75, 2.5, 100e6},
}

// setsTool is a way to hold a list.
type setsTool struct {
	name, label string
	slow        bool // takes minutes for 10 million addresses
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
	rig.Builder
	List *rig.List
	load report.Table
}

// measureList makes the two tables of a list: rates, and what loading costs.
func measureList(ctx context.Context, s *rig.Session, l *rig.List) error {
	return rig.InLab(ctx, func(into *lab.Lab) error {
		b := &Builder{Builder: rig.Builder{Session: s, Lab: into}, List: l}
		defer b.Close()
		b.Flow = rig.Flood(l.Unlisted)
		b.Table.Title = "sets: " + l.Label + "; 64-byte UDP packets"
		if l.V6 {
			b.Table.Title = "sets: " + l.Label + "; 66-byte UDP packets"
		}
		b.load = report.Table{
			Title: "sets: loading " + l.Label,
			Head:  []string{"", "seconds", "bar", "MB in the kernel", "bytes each", "bar", ""},
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
	defer b.publishLoad() // what there is, also when the rest cannot be measured
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
		return nil // some tools take a minute to load the list
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

// loadRow adds the tool's row to the table of loading.
func (b *Builder) loadRow(t setsTool, g rig.Loaded, reason string, bars goals) {
	cells := []string{t.label, "", "", "", "", "", reason + g.Note}
	name := fmt.Sprintf("%s/%s/%s", b.Outcome.Name, b.List.Name, t.name)
	bar := func(value, most float64, what string) string {
		if most == 0 {
			return ""
		}
		bar := report.AtMost(name+" "+what, value, most)
		b.Outcome.Bars = append(b.Outcome.Bars, bar)
		return bar.String()
	}
	if len(g.Seconds) > 0 {
		cells[1] = report.SecondsText(g.Seconds.Median())
		cells[2] = bar(g.Seconds.Median(), bars.seconds, "seconds to load")
	}
	if g.Bytes > 0 {
		cells[3] = fmt.Sprintf("%.1f", g.Bytes/1e6)
		cells[4] = fmt.Sprintf("%.0f", g.Bytes/float64(len(b.List.Prefixes)))
		cells[5] = bar(g.Bytes/1e6, bars.bytes/1e6, "MB")
	}
	if g.Roughly {
		cells[6] += "memory: what the whole machine's slabs and vmalloc grew by"
	}
	b.load.AddRow(cells...)
}
