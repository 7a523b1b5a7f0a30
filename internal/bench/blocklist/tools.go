package bench

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// blocker is a way to block addresses.
type blocker struct {
	name, label string
	article     []float64 // milliseconds of a request in the article, by publishedColumns; nil: it has none
	most        int       // entries that it is measured with; 0: any number
	slow        bool      // takes minutes for 10 million addresses

	// load has a site block a list. Without it, nothing is blocked.
	load func(context.Context, *site, *list) (blocking, error)
}

// blocking is a list that is blocked.
type blocking struct {
	loaded
	remove func() error // nil: there is nothing to remove
}

// Names of rows that others are compared with.
const (
	noFirewall   = "no-firewall"
	noneAgain    = "no-firewall/again"
	rulesBlocker = "iptables"
	ipsetBlocker = "ipset"
	ourBlocker   = "floodwall"
)

// blockCases are the rows. Those without firewall stand at both ends, as they are the measure of the others.
func blockCases() (cases []*blockCase) {
	for _, by := range []blocker{
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
	} {
		cases = append(cases, &blockCase{blocker: by})
	}
	return cases
}

// leastRulesToWeigh is from which number of rules on their memory stands out of what else happens on a machine.
const leastRulesToWeigh = 25_000

// blockByRules has iptables drop each entry by a rule of its own.
func blockByRules(ctx context.Context, at *site, l *list) (g blocking, err error) {
	var rules strings.Builder
	rules.WriteString("*filter\n")
	var line []byte
	for _, p := range l.prefixes {
		line = append(l.appendEntry(append(line[:0], "-A INPUT -s "...), p), " -j DROP\n"...)
		rules.Write(line)
	}
	rules.WriteString("COMMIT\n")
	before := kernelMemory()
	took, err := restoreRules(ctx, at, l.v6, rules.String())
	if err != nil {
		return g, err
	}
	g.loaded = loaded{seconds: series{took.Seconds()}}.weighed(before, len(l.prefixes), leastRulesToWeigh)
	g.remove = func() error { return l.flushRules(ctx, at) }
	return g, nil
}

// flushRules removes all rules of the filter table.
func (l *list) flushRules(ctx context.Context, at *site) error {
	_, err := restoreRules(context.WithoutCancel(ctx), at, l.v6, "*filter\nCOMMIT\n")
	return err
}

// blockByIpset has one rule of iptables drop what is in a set.
func blockByIpset(ctx context.Context, at *site, l *list) (g blocking, err error) {
	if g.loaded, err = restoreIpset(ctx, at, l); err != nil {
		return g, err
	}
	g.remove = func() error {
		if err := l.flushRules(ctx, at); err != nil {
			return err
		}
		_, _, err := runTool(context.WithoutCancel(ctx), at.server, nil, "ipset", "destroy", "listed")
		return err
	}
	_, err = restoreRules(ctx, at, l.v6, "*filter\n-A INPUT "+matchListed+" -j DROP\nCOMMIT\n")
	return g, err
}

// blockByNft has one rule of nft drop what is in a set.
func blockByNft(ctx context.Context, at *site, l *list) (g blocking, err error) {
	if g.loaded, err = loadNftSet(ctx, at, l, nftInput, nftDrop(l)); err != nil {
		return g, err
	}
	g.remove = func() error {
		_, _, err := runTool(context.WithoutCancel(ctx), at.server, nil, "nft", "flush", "ruleset")
		return err
	}
	return g, nil
}

// blockByFloodwall applies a policy that drops what is in a set, to the target that Floodwall chooses.
func blockByFloodwall(ctx context.Context, at *site, l *list) (g blocking, err error) {
	file, forget, err := tempFile("blocked.txt", l.write)
	if err != nil {
		return g, err
	}
	defer forget()
	policy := fmt.Sprintf("default: pass\nsets: {blocked: {file: %s}}\nrules: [{name: blocked, from: $blocked, then: drop}]\n", strconv.Quote(file))
	debug.FreeOSMemory() // as a command begins
	start := time.Now()
	held, err := at.install(ctx, policy, targetOptions("auto"))
	if err != nil {
		return g, err
	}
	g.seconds, g.remove = series{time.Since(start).Seconds()}, held.remove
	err = at.server.Do(func() error {
		program, err := attachedProgram(at.in.Name)
		if err != nil {
			return err
		}
		defer program.Close()
		octets, err := mapMemory(program)
		g.octets = float64(octets)
		return err
	})
	return g, err
}
