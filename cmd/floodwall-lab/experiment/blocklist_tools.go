package experiment

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
)

// blocker is a way to block addresses.
type blocker struct {
	name, label string
	article     []float64 // milliseconds of a request in the article, by publishedColumns; nil: not in the article
	most        int       // the largest number of entries that is measured; 0: no bound
	slow        bool      // it takes minutes to load 10 million addresses

	// load blocks a list at a site. If load is nil, nothing is blocked.
	load func(context.Context, *rig.Site, *rig.List) (rig.Loaded, error)

	site *rig.Site // of its own
}

// Names of rows with which other rows are compared.
const (
	noFirewall   = "no-firewall"
	noneAgain    = "no-firewall/again"
	rulesBlocker = "iptables"
	ipsetBlocker = "ipset"
	ourBlocker   = "floodwall"
)

// blockers returns the rows. The first and the last row have no firewall, because the others are compared with them.
func blockers() []*blocker {
	return []*blocker{
		{name: noFirewall, label: "no firewall"},
		{
			name: rulesBlocker, label: "iptables: a rule each", most: publishedMost, load: blockByRules,
			article: []float64{0.76, 0.98, 1.77, 4.28, 4.00, 9.85, 8.04, 8.75, 15.05, 10.44, 10.89, 12.06},
		},
		{
			name: ipsetBlocker, label: "iptables: one ipset", slow: true, load: blockByIpset,
			article: []float64{0.63, 0.57, 0.93, 0.58, 0.61, 0.65, 0.84, 0.91, 1.29, 0.54, 0.95, 1.28},
		},
		{name: "nft", label: "nft: one set", slow: true, load: blockByNft},
		{name: ourBlocker, label: "floodwall", load: blockByFloodwall},
		{name: noneAgain, label: "no firewall, again"},
	}
}

// leastRulesToWeigh is the minimum number of rules whose memory can be measured. The memory of fewer rules is hidden by other changes of the
// machine's memory.
const leastRulesToWeigh = 25_000

// blockByRules makes iptables drop packets from each entry by a separate rule.
func blockByRules(ctx context.Context, at *rig.Site, l *rig.List) (g rig.Loaded, err error) {
	var rules strings.Builder
	rules.WriteString("*filter\n")
	var line []byte
	for _, p := range l.Prefixes {
		line = append(l.AppendEntry(append(line[:0], "-A INPUT -s "...), p), " -j DROP\n"...)
		rules.Write(line)
	}
	rules.WriteString("COMMIT\n")
	before := rig.KernelMemory()
	took, err := rig.RestoreRules(ctx, at, l.V6, rules.String())
	if err != nil {
		return g, err
	}
	g = rig.Loaded{Seconds: report.Samples{took.Seconds()}}.Weighed(before, len(l.Prefixes), leastRulesToWeigh)
	g.Remove = func() error { return flushRules(ctx, l, at) }
	return g, nil
}

// flushRules removes all rules of the filter table.
func flushRules(ctx context.Context, l *rig.List, at *rig.Site) error {
	_, err := rig.RestoreRules(context.WithoutCancel(ctx), at, l.V6, "*filter\nCOMMIT\n")
	return err
}

// blockByIpset makes iptables drop packets from the entries of a set by one rule.
func blockByIpset(ctx context.Context, at *rig.Site, l *rig.List) (g rig.Loaded, err error) {
	if g, err = rig.RestoreIpset(ctx, at, l); err != nil {
		return g, err
	}
	g.Remove = func() error {
		if err := flushRules(ctx, l, at); err != nil {
			return err
		}
		_, _, err := rig.RunTool(context.WithoutCancel(ctx), at.Server, nil, "ipset", "destroy", "listed")
		return err
	}
	_, err = rig.RestoreRules(ctx, at, l.V6, "*filter\n-A INPUT "+rig.MatchListed+" -j DROP\nCOMMIT\n")
	return g, err
}

// blockByNft makes nft drop packets from the entries of a set by one rule.
func blockByNft(ctx context.Context, at *rig.Site, l *rig.List) (g rig.Loaded, err error) {
	if g, err = rig.LoadNftSet(ctx, at, l, rig.NftInput, rig.NftDrop(l)); err != nil {
		return g, err
	}
	g.Remove = func() error {
		_, _, err := rig.RunTool(context.WithoutCancel(ctx), at.Server, nil, "nft", "flush", "ruleset")
		return err
	}
	return g, nil
}

// blockByFloodwall applies a policy that drops packets from the entries of a set. Floodwall chooses the target.
func blockByFloodwall(ctx context.Context, at *rig.Site, l *rig.List) (g rig.Loaded, err error) {
	file, forget, err := rig.TempFile("blocked.txt", l.Write)
	if err != nil {
		return g, err
	}
	defer forget()
	policy := fmt.Sprintf("default: pass\nsets: {blocked: {file: %s}}\nrules: [{name: blocked, from: $blocked, then: drop}]\n", strconv.Quote(file))
	debug.FreeOSMemory() // a command starts with an empty heap, too
	start := time.Now()
	held, err := at.Install(ctx, policy, rig.TargetOptions("auto"))
	if err != nil {
		return g, err
	}
	g.Seconds, g.Remove = report.Samples{time.Since(start).Seconds()}, held.Remove
	err = at.Server.Do(func() error {
		program, err := rig.AttachedProgram(at.In.Name)
		if err != nil {
			return err
		}
		defer program.Close()
		bytes, err := rig.MapMemory(program)
		g.Bytes = float64(bytes)
		return err
	})
	return g, err
}
