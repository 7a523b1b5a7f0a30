// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ruleset has the rules of all firewalls of the host, in nftables and in iptables.
type ruleset struct {
	chains []*chain // in a fixed order
	byKey  chains
	errs   []error // errors about missing parts
}

// backend is the part of the kernel that evaluates a chain.
type backend string

const (
	nftables backend = "nftables" // includes iptables-nft
	iptables backend = "iptables" // x_tables, used by iptables-legacy
)

// hook is the hook of a chain, as in enum nf_inet_hooks. Its last value, ingress, also stands for ingress of the family netdev.
type hook int

const (
	noHook     hook = -1 // the chain is reached only from other chains
	prerouting hook = unix.NF_INET_PRE_ROUTING
	input      hook = unix.NF_INET_LOCAL_IN
	forward    hook = unix.NF_INET_FORWARD
	ingress    hook = 5 // NF_INET_INGRESS
)

func (h hook) String() string {
	names := map[hook]string{prerouting: "prerouting", input: "input", forward: "forward", ingress: "ingress"}
	return names[h]
}

// place identifies the table of a chain. Names of chains are unique within a table.
type place struct {
	backend backend
	family  string // nft's name: ip, ip6, inet, netdev, bridge, arp
	table   string
}

// chain is a list of rules.
type chain struct {
	place
	name     string
	hook     hook
	priority int
	nat      bool // only the first packet of a connection passes the chain
	rules    int
	jumps    []jump
	uses     int  // nftables: number of the chain's rules plus the references to the chain
	mapped   bool // whether a verdict map refers to the chain, from an unknown rule
}

// jump is a rule that jumps to another chain of the same table.
type jump struct {
	to          string
	conditional bool
}

func (c *chain) String() string { return c.family + " " + c.table + " " + c.name }

// source names the source of the chain's data, for evidence.
func (c *chain) source() string {
	if c.backend == iptables {
		return "iptables-legacy-save"
	}
	return "the kernel's nftables"
}

// chains is a ruleset that is being read.
type chains map[chainKey]*chain

type chainKey struct {
	place
	name string
}

// at returns the chain with a name. It creates the chain if necessary.
func (c chains) at(p place, name string) *chain {
	key := chainKey{p, name}
	if c[key] == nil {
		c[key] = &chain{place: p, name: name, hook: noHook}
	}
	return c[key]
}

// readRules reads all rules. Errors about parts that cannot be read are stored in the result. If nothing can be read, readRules returns an error.
func readRules(ctx context.Context, h *host) (*ruleset, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	all, old := chains{}, chains{}
	done := make(chan error)
	go func() { done <- readLegacy(ctx, h, old) }()
	nft, legacy := readNftables(all), <-done
	maps.Copy(all, old)
	if errors.Is(nft, fs.ErrPermission) {
		return nil, nft
	}
	r := newRuleset(all)
	for _, err := range []error{nft, legacy} {
		if err != nil {
			r.errs = append(r.errs, err)
		}
	}
	return r, nil
}

func newRuleset(all chains) *ruleset {
	r := &ruleset{byKey: all}
	r.chains = slices.SortedFunc(maps.Values(all), func(a, b *chain) int {
		return strings.Compare(string(a.backend)+a.String(), string(b.backend)+b.String())
	})
	r.findMapped()
	for _, c := range r.chains {
		if c.nat && c.hook != noHook {
			for _, below := range r.below(c) {
				below.nat = true
			}
		}
	}
	return r
}

// findMapped marks the chains that have more uses than rules and jumps to them. The other uses are elements of verdict maps.
func (r *ruleset) findMapped() {
	known := map[*chain]int{}
	for _, c := range r.chains {
		known[c] += c.rules
		for _, j := range c.jumps {
			known[r.to(c, j)]++
		}
	}
	for _, c := range r.chains {
		c.mapped = c.hook == noHook && c.uses > known[c]
	}
}

// to returns the chain to which a rule of c jumps. It returns nil if the chain is not known.
func (r *ruleset) to(c *chain, j jump) *chain { return r.byKey[chainKey{c.place, j.to}] }

// below lists the chain and all chains that can be reached from it.
func (r *ruleset) below(top *chain) (list []*chain) {
	seen := map[*chain]bool{nil: true}
	var visit func(c *chain)
	visit = func(c *chain) {
		if seen[c] {
			return
		}
		seen[c] = true
		list = append(list, c)
		for _, j := range c.jumps {
			visit(r.to(c, j))
		}
	}
	visit(top)
	return list
}

// reached lists the chains that incoming packets can reach, in the ruleset's order. It assumes that packets can reach chains in verdict maps.
func (r *ruleset) reached() (list []*chain) {
	seen := map[*chain]bool{}
	for _, c := range r.chains {
		if c.hook.String() == "" && !c.mapped || seen[c] {
			continue
		}
		for _, below := range r.below(c) {
			seen[below] = true
		}
	}
	for _, c := range r.chains {
		if seen[c] {
			list = append(list, c)
		}
	}
	return list
}

// met counts the rules that a packet passes if it matches none. These are all rules of the chain, of all chains to which it jumps unconditionally,
// and of the longest chain to which it jumps conditionally, since conditions mostly exclude each other. Chains in verdict maps are not counted. known
// caches the counts; the kernel allows no loops.
func (r *ruleset) met(c *chain, known map[*chain]int) int {
	if c == nil {
		return 0
	}
	if n, is := known[c]; is {
		return n
	}
	known[c] = c.rules
	n, longest := c.rules, 0
	for _, j := range c.jumps {
		below := r.met(r.to(c, j), known)
		if j.conditional {
			longest = max(longest, below)
		} else {
			n += below
		}
	}
	known[c] = n + longest
	return known[c]
}
