// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// countedElements is the largest number of elements of one set that Verify counts. The time in which the kernel lists intervals grows with the square
// of their number: 30 s for 300,000. For larger sets Verify checks only that they exist. The kernel reports each element that it refuses when the set
// is loaded.
const countedElements = 10_000

// Verify compares a table in the kernel with its script: base chains with hook, priority, devices and verdict, the number of rules of each chain,
// sets with type and number of elements, and named counters. A set may have fewer elements than in the script if its elements are merged or expire.
// Missing devices are not compared: before Linux 6.16, a chain loses a device that goes away, and is removed with its last device. The error lists
// all differences.
func (n *Nft) Verify(_ context.Context, t Table) error {
	asked, err := readTable(t.Script, t.Name)
	if err != nil {
		return fmt.Errorf("verifying table %s: %w", t.Name, err)
	}
	held, err := asked.held(t.Name)
	if err != nil {
		return fmt.Errorf("verifying table %s: %w", t.Name, err)
	}
	if err := errors.Join(differences(asked, held)...); err != nil {
		return fmt.Errorf("the kernel does not hold table %s as asked: %w", t.Name, err)
	}
	return nil
}

// held reads the tables of a name from the kernel. It counts the elements of a set only if the script has at most countedElements for it.
func (t *nftTable) held(name string) (*nftTable, error) {
	held := &nftTable{chains: map[string]*nftChain{}, sets: map[string]*nftSet{}}
	for prefix, family := range map[string]uint8{"": unix.NFPROTO_INET, ofTagged: unix.NFPROTO_NETDEV} {
		table, err := nftable.Read(family, name)
		if err != nil {
			return nil, err
		}
		for _, c := range table.Chains {
			held.chains[prefix+c.Name] = heldChainOf(c)
		}
		for _, s := range table.Sets {
			to := held.set(prefix + s.Name)
			if to.kind = s.Type(); t.sets[prefix+s.Name].counted() {
				if to.number, err = countElements(s); err != nil {
					return nil, err
				}
			}
		}
		for _, o := range table.Objects {
			if o.Type == unix.NFT_OBJECT_COUNTER {
				held.counters = append(held.counters, o.Name)
			}
		}
	}
	return held, nil
}

func heldChainOf(c *nftable.Chain) *nftChain {
	held := &nftChain{hook: c.HookName()}
	for _, r := range c.Rules {
		if r.Comment != guardComment {
			held.rules++
		}
	}
	if c.Hook != nil {
		held.priority, held.devices, held.verdict = int(c.Hook.Priority), c.Hook.Devices, "accept"
		if c.Hook.Policy == nftable.Drop {
			held.verdict = "drop"
		}
	}
	return held
}

// countElements returns the number of elements of a set. It counts each interval once.
func countElements(s *nftable.Set) (n int, err error) {
	elements, err := nftable.Elements(s.Family, s.Table, s.Name)
	for _, e := range elements {
		if !e.End {
			n++
		}
	}
	return n, err
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
		case a.counted() && !a.holds(h.number):
			differ("set %s has %d elements, not %d", name, h.number, a.distinct())
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

// form returns a description of a base chain for comparison.
func (c *nftChain) form() string {
	if c.hook == "" {
		return "no base chain"
	}
	return fmt.Sprintf("hook %s priority %d devices %v policy %s", c.hook, c.priority, c.present(), c.verdict)
}

// present returns the devices of a chain that exist.
func (c *nftChain) present() []string {
	return slices.DeleteFunc(slices.Clone(c.devices), absent)
}

// counted reports whether Verify counts the elements of a set.
func (s *nftSet) counted() bool {
	return s != nil && len(s.elements) > 0 && len(s.elements) <= countedElements
}

// holds reports whether the script can result in the given number of elements.
func (s *nftSet) holds(number int) bool {
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
