package bench

import (
	"context"
	"fmt"

	"github.com/floodwall/floodwall/internal/lab"
)

// sets measures what it costs to find a source in a list of addresses, and what the list costs.
func sets(ctx context.Context, s *session) error {
	for _, prepare := range s.lists() {
		s.progress.show("making addresses")
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

// lists makes the lists to measure with, each when its turn comes: the largest need much memory.
func (s *session) lists() (all []func() (*list, error)) {
	if s.List != "" {
		return append(all, func() (*list, error) { return readList(s.List) })
	}
	most := 0
	for _, n := range s.setSizes() {
		most = max(most, n)
		all = append(all, func() (*list, error) { return randomHosts(n), nil })
	}
	return append(all, func() (*list, error) { return randomPrefixes(min(v6Size, most)), nil })
}

// setSizes are the sizes of the lists.
func (s *session) setSizes() []int {
	if s.Sizes != nil {
		return s.Sizes
	}
	sizes := []int{1_000, 100_000, 1_000_000, 10_000_000}
	return choice(s.Quick, sizes[1:2], sizes)
}

// setBars is what Floodwall must reach with random IPv4 addresses: shares of the empty program's rate for sources that
// are listed and that are not, seconds to apply the text file, and octets of kernel memory; 0 where nothing is asked.
type setBars struct{ listed, unlisted, seconds, octets float64 }

var barsBySize = map[string]setBars{
	"n=1000000":  {0.50, 0.80, 1.0, 128e6},
	"n=10000000": {0.40, 0.75, 0, 0},
}

// setTool is a way to hold a list.
type setTool struct {
	name, label string
	slow        bool // takes minutes for 10 million addresses
	load        func(context.Context, *setBuilder) (loaded, error)
}

var setTools = []setTool{
	{"floodwall", "floodwall", false, loadFloodwall},
	{"bpf-hash", "BPF hash map, a program with nothing else", false, loadHash},
	{"bpf-lpm", "BPF LPM trie, a program with nothing else", true, loadTrie},
	{"ipset", "ipset, iptables raw", true, loadIpset},
	{"nft/ingress", "nft set, ingress hook", true, loadNft(nftIngress)},
	{"nft/raw", "nft set, raw prerouting", true, loadNft(nftRaw)},
}

// setBuilder makes the tables of one list.
type setBuilder struct {
	builder
	list *list
	load Table
}

// measureList makes the two tables of a list: rates, and what loading costs.
func measureList(ctx context.Context, s *session, l *list) error {
	return inLab(ctx, func(into *lab.Lab) error {
		b := &setBuilder{builder: builder{session: s, lab: into}, list: l}
		defer b.close()
		b.flow = flood(l.unlisted)
		b.table.title = "sets: " + l.label + "; 64-byte UDP packets"
		if l.v6 {
			b.table.title = "sets: " + l.label + "; 66-byte UDP packets"
		}
		b.load = Table{
			Title: "sets: loading " + l.label,
			Head:  []string{"", "seconds", "bar", "MB in the kernel", "octets each", "bar", ""},
			Notes: []string{
				"Seconds: floodwall from the policy's text file to enforcement (what `floodwall apply` takes); BPF maps from",
				"addresses in memory, by batches; ipset and nft with their own tools, from scripts in their own format.",
			},
		}
		if l.note != "" {
			b.table.notes = append(b.table.notes, l.note)
		}
		return b.run(ctx)
	})
}

func (b *setBuilder) run(ctx context.Context) error {
	if err := b.limits(); err != nil {
		return err
	}
	defer b.publishLoad() // what there is, also when the rest cannot be measured
	for _, t := range setTools {
		if err := b.tool(ctx, t); err != nil {
			return err
		}
	}
	return b.builder.measure(ctx)
}

func (b *setBuilder) publishLoad() {
	if len(b.load.Rows) > 0 {
		b.outcome.Tables = append(b.outcome.Tables, &b.load)
	}
}

// tool loads the list with a tool and adds the rows.
func (b *setBuilder) tool(ctx context.Context, t setTool) error {
	n := len(b.list.prefixes)
	var got loaded
	err := error(&missingTool{"takes minutes: measured with --all"})
	if !t.slow || n < slowSize || b.All {
		b.progress.show("loading %s: %s", b.list.label, t.label)
		got, err = t.load(ctx, b)
	}
	reason, err := tolerate(err)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", t.label, b.list.label, err)
	}
	bars := setBars{}
	if t.name == "floodwall" {
		bars = barsBySize[b.list.name]
	}
	b.loadRow(t, got, reason, bars)
	prefix := b.list.name + "/" + t.name
	if reason != "" {
		b.add(&rate{name: prefix, label: t.label, missing: reason})
		return nil
	}
	b.add(&rate{
		name: prefix + "/listed", label: t.label + ": listed sources", subject: got.subject,
		least: bars.listed, flows: []lab.Flow{flood(b.list.listed)}, extra: got.metrics(),
	})
	b.add(&rate{
		name: prefix + "/unlisted", label: t.label + ": unlisted sources", subject: got.subject,
		least: bars.unlisted,
	})
	return nil
}

// loadRow adds the tool's row to the table of loading.
func (b *setBuilder) loadRow(t setTool, g loaded, reason string, bars setBars) {
	cells := []string{t.label, "", "", "", "", "", reason + g.note}
	name := fmt.Sprintf("%s/%s/%s", b.outcome.Name, b.list.name, t.name)
	bar := func(value, most float64, what string) string {
		if most == 0 {
			return ""
		}
		bar := atMost(name+" "+what, value, most)
		b.outcome.Bars = append(b.outcome.Bars, bar)
		return bar.String()
	}
	if len(g.seconds) > 0 {
		cells[1] = secondsText(g.seconds.median())
		cells[2] = bar(g.seconds.median(), bars.seconds, "seconds to load")
	}
	if g.octets > 0 {
		cells[3] = fmt.Sprintf("%.1f", g.octets/1e6)
		cells[4] = fmt.Sprintf("%.0f", g.octets/float64(len(b.list.prefixes)))
		cells[5] = bar(g.octets/1e6, bars.octets/1e6, "MB")
	}
	if g.roughly {
		cells[6] += "memory: what the whole machine's slabs and vmalloc grew by"
	}
	b.load.row(cells...)
}
