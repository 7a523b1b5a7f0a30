package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// exchangeGroup is steps that follow each other in a round: a list comes, and goes with the last.
type exchangeGroup struct {
	name, label string
	holders     []string // how the names of the threads begin that do it
	steps       []exchangeStep
	missing     string // why it is not measured
}

// exchangeStep is a part of a round, in a row. Several may be of one row.
type exchangeStep struct {
	row  *exchangeRow
	work func(context.Context) error
}

// ownHolders are the programs that Floodwall runs, and itself.
var ownHolders = []string{"floodwall", "nft", "ipset", "iptables", "ip6tables"}

// From how many addresses on a target or a map takes minutes. nft takes three seconds for 100,000 and much more than ten times as long for a million.
const (
	slowNft   = 500_000
	slowOther = rig.SlowSize
)

// allGroups are the groups of which rows are wanted: Floodwall's targets, and BPF maps that hold one entry for each address.
func (b *exchangeBuilder) allGroups() (all []*exchangeGroup) {
	groups := []*exchangeGroup{
		b.ownGroup("xdp", 0), b.ownGroup("nftables", slowNft), b.ownGroup("iptables", slowOther),
		b.mapGroup("bpf-hash", "BPF hash map", !b.list.V6 && b.list.Hosts, b.fillHash), b.mapGroup("bpf-lpm", "BPF LPM trie", !b.list.V6, b.fillTrie),
	}
	for _, g := range groups {
		for _, step := range g.steps {
			if b.Wants(step.row.name) {
				all = append(all, g)
				break
			}
		}
	}
	return all
}

// row is a row of a group.
func (b *exchangeBuilder) row(name, label string) *exchangeRow {
	return &exchangeRow{name: b.list.Name + "/" + name, label: label, entries: len(b.list.Prefixes)}
}

// ownGroup is Floodwall on a target. The second exchange frees the first list, since the generation before stays for a rollback.
func (b *exchangeBuilder) ownGroup(target string, slow int) *exchangeGroup {
	g := &exchangeGroup{name: "floodwall/" + target, label: "floodwall, " + target, holders: ownHolders}
	row := func(name, label string) *exchangeRow { return b.row(g.name+"/"+name, g.label+": "+label) }
	apply := func(edition int) func(context.Context) error {
		return func(ctx context.Context) error {
			return b.ours.run(ctx, "apply", b.policy(edition), "--target", target)
		}
	}
	exchange := row("exchange", "another list in its place")
	if g.steps = []exchangeStep{{row("load", "a list where there was none"), apply(0)}}; target == "xdp" {
		exchange.bar = true
		g.steps = append(g.steps, exchangeStep{row("quiet", "nothing is done"), func(ctx context.Context) error {
			wait(ctx, freeTime(b.Session))
			return ctx.Err()
		}})
	}
	unload := exchangeStep{row("unload", "all is taken away"), func(ctx context.Context) error { return b.ours.run(ctx, "unload") }}
	unload.row.bar = exchange.bar
	g.steps = append(g.steps, exchangeStep{exchange, apply(1)}, exchangeStep{exchange, apply(0)}, unload)
	if n := len(b.list.Prefixes); slow > 0 && n >= slow && !b.All {
		g.missing = "takes minutes: measured with --all"
	}
	return g
}

// mapGroup is a BPF map with an entry for each address, which this process fills and lets go.
func (b *exchangeBuilder) mapGroup(name, label string, fits bool, fill func() (rig.LoadedPeer, error)) *exchangeGroup {
	g := &exchangeGroup{name: name, label: label, holders: []string{ownName()}}
	if !fits {
		g.missing = "does not hold such a list here"
	}
	if need := 150 * uint64(len(b.list.Prefixes)); rig.AvailableMemory() < 2*need {
		g.missing = "not enough memory"
	}
	var filled rig.LoadedPeer
	g.steps = []exchangeStep{
		{b.row(name+"/fill", label+": filled"), func(context.Context) error {
			return onWorkCPU(func() (err error) { filled, err = fill(); return err })
		}},
		{b.row(name+"/free", label+": freed"), func(context.Context) error {
			return onWorkCPU(func() error { return closePeer(&filled) })
		}},
	}
	return g
}

// closePeer lets a program and its set go, if they were loaded.
func closePeer(p *rig.LoadedPeer) error {
	if p.Program == nil {
		return nil
	}
	err := errors.Join(p.Program.Close(), p.Set.Close())
	*p = rig.LoadedPeer{}
	return err
}

// fillHash fills a hash map.
func (b *exchangeBuilder) fillHash() (rig.LoadedPeer, error) {
	keys := make([][4]byte, len(b.list.Prefixes))
	for i, prefix := range b.list.Prefixes {
		keys[i] = prefix.Addr().As4()
	}
	return fillPeer(rig.Hash4, keys)
}

// fillTrie fills an LPM trie.
func (b *exchangeBuilder) fillTrie() (rig.LoadedPeer, error) {
	return fillPeer(rig.LPM4, trieKeys(b.list.Prefixes, netip.Addr.As4))
}

// fillPeer loads a program of bpf/bench.c and fills its set.
func fillPeer[K any](program string, keys []K) (rig.LoadedPeer, error) {
	p, err := rig.LoadPeer(program, func(m *ebpf.MapSpec) { m.MaxEntries = uint32(len(keys)) }, nil)
	if err != nil {
		return p, err
	}
	if err := fill(p.Set, keys); err != nil {
		return rig.LoadedPeer{}, errors.Join(err, closePeer(&p))
	}
	return p, nil
}

// publish adds the table, the results and the bars to the outcome.
func (b *exchangeBuilder) publish() {
	t := &report.Table{
		Title: fmt.Sprintf("exchange: %s; milliseconds for which CPUs do nothing else, the longest of each time", b.list.Label),
		Head: []string{
			"", "seconds", "another CPU: median", "longest", "bar", "its own CPU: median", "longest", "answer: median", "longest",
			"others had a CPU", "late in all", "",
		},
		Notes: exchangeNotes(b.Session),
	}
	for _, g := range b.groups {
		for i, step := range g.steps {
			if i > 0 && g.steps[i-1].row == step.row {
				continue
			}
			r := step.row
			result, bars := r.result(b.Outcome.Name, g.missing)
			b.Outcome.Results, b.Outcome.Bars = append(b.Outcome.Results, result), append(b.Outcome.Bars, bars...)
			t.AddRow(r.cells(g.missing, bars)...)
		}
	}
	if len(t.Rows) > 0 {
		b.Outcome.Tables = append(b.Outcome.Tables, t)
	}
}
