package netfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// countedElements is the largest number of elements of one set that Verify counts: nft needs a second to list 100,000. Of
// larger sets it checks that they are there; the kernel reports each element that it does not take.
const countedElements = 10_000

// Verify compares what the kernel holds of a table with its script: base chains with hook, priority, devices and
// verdict, the number of rules of each chain, sets with type and number of elements, and named counters. A set that
// merges its elements, or whose elements end, may have fewer than asked. Devices that are not there are not compared: a
// chain loses them, and with the last one ceases to be (before Linux 6.16). The error lists all differences.
func (n *Nft) Verify(ctx context.Context, t Table) error {
	asked, err := readTable(t.Script, t.Name, true)
	if err != nil {
		return fmt.Errorf("verifying table %s: %w", t.Name, err)
	}
	out, err := n.listing(ctx)
	if err != nil {
		return fmt.Errorf("verifying table %s: %w", t.Name, err)
	}
	held, err := readTable(out, t.Name, false)
	if err != nil {
		return fmt.Errorf("verifying table %s: %w", t.Name, err)
	}
	for name, set := range asked.sets {
		if err := n.fill(ctx, t.Name, name, set, held.sets[name]); err != nil {
			return fmt.Errorf("verifying table %s: %w", t.Name, err)
		}
	}
	if err := errors.Join(differences(asked, held)...); err != nil {
		return fmt.Errorf("the kernel does not hold table %s as asked: %w", t.Name, err)
	}
	return nil
}

// fill reads the elements of a set that the kernel holds, if they are to be counted.
func (n *Nft) fill(ctx context.Context, table, name string, asked, held *nftSet) error {
	if held == nil || len(asked.elements) > countedElements {
		asked.elements = nil
		return nil
	}
	if len(asked.elements) == 0 {
		return nil
	}
	out, err := n.run(ctx, "", "list", "set", "inet", table, name)
	if err != nil {
		out, err = n.run(ctx, "", "list", "map", "inet", table, name)
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	listed, err := readTable(out, table, false)
	if err == nil && listed.sets[name] != nil {
		held.elements = listed.sets[name].elements
	}
	return err
}

func differences(asked, held *nftTable) (list []error) {
	differ := func(format string, args ...any) { list = append(list, fmt.Errorf(format, args...)) }
	for name, a := range asked.chains {
		h := held.chains[name]
		if len(a.devices) > 0 && len(a.present()) == 0 {
			continue
		}
		switch {
		case h == nil:
			differ("no chain %s", name)
		case a.form() != h.form():
			differ("chain %s is %q, not %q", name, h.form(), a.form())
		case a.rules != h.rules:
			differ("chain %s has %d rules, not %d", name, h.rules, a.rules)
		}
	}
	for name, a := range asked.sets {
		h := held.sets[name]
		switch {
		case h == nil:
			differ("no set %s", name)
		case a.kind != h.kind:
			differ("set %s is %q, not %q", name, h.kind, a.kind)
		case !a.holds(len(h.elements)):
			differ("set %s has %d elements, not %d", name, len(h.elements), a.distinct())
		}
	}
	for _, name := range asked.counters {
		if !slices.Contains(held.counters, name) {
			differ("no counter %s", name)
		}
	}
	slices.SortFunc(list, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return list
}

// form is what makes a base chain.
func (c *nftChain) form() string {
	if c.hook == "" {
		return "no base chain"
	}
	return fmt.Sprintf("hook %s priority %d devices %v policy %s", c.hook, c.priority, c.present(), c.verdict)
}

// present are the devices of a chain that there are.
func (c *nftChain) present() []string {
	return slices.DeleteFunc(slices.Clone(c.devices), absent)
}

// holds reports whether so many elements can be what was asked.
func (s *nftSet) holds(number int) bool {
	if s.elements == nil {
		return true
	}
	if s.merged || s.timeout {
		return number <= s.distinct()
	}
	return number == s.distinct()
}

func (s *nftSet) distinct() int {
	seen := make(map[string]bool, len(s.elements))
	for _, e := range s.elements {
		seen[e] = true
	}
	return len(seen)
}
