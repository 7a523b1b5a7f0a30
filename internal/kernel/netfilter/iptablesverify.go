// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Verify compares the generation in the kernel with its scripts: the number of rules of each chain, and the number of entries of each set. The number
// may differ for a set with timeouts. It may be larger for a set to which ranges or prefixes were added. The error lists all differences.
func (x *Iptables) Verify(ctx context.Context, r Rules) error {
	list, err := x.differences(ctx, r)
	if err != nil {
		return err
	}
	return notAsAsked(r.Name, list)
}

// notAsAsked returns an error that lists differences. It returns nil if there are none.
func notAsAsked(name string, list []error) error {
	slices.SortFunc(list, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := errors.Join(list...); err != nil {
		return fmt.Errorf("the kernel does not hold %s as asked: %w", name, err)
	}
	return nil
}

func (x *Iptables) differences(ctx context.Context, r Rules) (list []error, err error) {
	for _, f := range x.families {
		asked, err := readSaved(r.script(f))
		if err != nil {
			return nil, err
		}
		held, err := f.read(ctx)
		if err != nil {
			return nil, err
		}
		has := ruleCounts(held)
		for chain, n := range ruleCounts(asked) {
			if got, ok := has[chain]; !ok {
				list = append(list, fmt.Errorf("no chain %s for IPv%s", chain, f.version))
			} else if got != n {
				list = append(list, fmt.Errorf("chain %s for IPv%s has %d rules, not %d", chain, f.version, got, n))
			}
		}
	}
	more, err := x.setDifferences(ctx, r)
	return append(list, more...), err
}

// ruleCounts returns the number of rules of each chain, by `CHAIN of table TABLE`.
func ruleCounts(tables []iptablesSaved) map[string]int {
	counts := map[string]int{}
	for _, t := range tables {
		for _, c := range t.chains {
			counts[c.name+" of table "+t.table] += 0
		}
		for _, r := range t.rules {
			counts[r.chain+" of table "+t.table]++
		}
	}
	return counts
}

var setHeader = wording.Regexp(
	`(?s)Name: (\S+)\n.*?Type: (\S+)\n.*?Header: ([^\n]*)\n(?:.*?Number of entries: (\d+))?`)

// iptablesSet is the output of ipset about a set, without the entries.
type iptablesSet struct {
	kind, header string
	entries      int
}

// headers returns the output of ipset about all sets, or about one set.
func (x *Iptables) headers(ctx context.Context, set ...string) (map[string]iptablesSet, error) {
	out, err := x.ipset.run(ctx, "", append([]string{"list", "-t"}, set...)...)
	if err != nil {
		return nil, err
	}
	sets := map[string]iptablesSet{}
	for block := range strings.SplitSeq(out, "\n\n") {
		if m := setHeader().FindStringSubmatch(block + "\n"); m != nil {
			entries, _ := strconv.Atoi(m[4])
			sets[m[1]] = iptablesSet{kind: m[2], header: " " + m[3] + " ", entries: entries}
		}
	}
	return sets, nil
}

// ranged reports whether adding an entry can create several entries: a range, or a prefix in a set of addresses.
func ranged(entry string) bool { return strings.ContainsAny(entry, "-/") }

func (x *Iptables) setDifferences(ctx context.Context, r Rules) (list []error, err error) {
	wrong, err := x.wrongSets(ctx, r)
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		list = append(list, wrong[name])
	}
	return list, err
}

// typeAndFamily returns the type of a set, and the family that its options may begin with. Sets that differ in either cannot be swapped.
func typeAndFamily(kind string, options []string) string {
	switch {
	case !strings.HasPrefix(kind, "hash:"):
		return kind
	case len(options) > 1 && options[0] == "family":
		return kind + " of " + options[1]
	}
	return kind + " of inet" // the default of ipset
}

// wrongSets returns an error for each set of a generation that differs from the script.
func (x *Iptables) wrongSets(ctx context.Context, r Rules) (wrong map[string]error, err error) {
	wrong = map[string]error{}
	asked, kinds := map[string]map[string]bool{}, map[string]string{}
	for line := range strings.Lines(r.IPSet) {
		words := append(strings.Fields(line), "", "", "")
		switch words[0] {
		case "create":
			asked[words[1]], kinds[words[1]] = map[string]bool{}, typeAndFamily(words[2], words[3:])
		case "add":
			if asked[words[1]] != nil {
				asked[words[1]][words[2]] = true
			}
		}
	}
	held, err := x.headers(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing ipsets: %w", err)
	}
	for name := range asked {
		h, ok := held[name]
		n := len(asked[name])
		changes := strings.Contains(h.header, " timeout ") // a dynamic set, whose entries change
		more := slices.ContainsFunc(slices.Collect(maps.Keys(asked[name])), ranged)
		switch {
		case !ok:
			wrong[name] = fmt.Errorf("no set %s", name)
		case typeAndFamily(h.kind, strings.Fields(h.header)) != kinds[name]:
			wrong[name] = fmt.Errorf("set %s is a %s, not a %s: somebody has replaced it", name, typeAndFamily(h.kind, strings.Fields(h.header)), kinds[name])
		case !changes && (h.entries > n && !more || h.entries < n):
			wrong[name] = fmt.Errorf("set %s has %d entries, not %d", name, h.entries, n)
		}
	}
	return wrong, nil
}
