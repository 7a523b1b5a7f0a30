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

// ruleset is the rules of all firewalls of the host, those of nftables and those of iptables.
type ruleset struct {
	chains []*chain // in a fixed order
	byKey  chains
	errs   []error // about what is missing in it
}

// backend is the part of the kernel that goes through a chain.
type backend string

const (
	nftables backend = "nftables" // also what iptables-nft makes
	iptables backend = "iptables" // x_tables, what iptables-legacy makes
)

// hook is where in the kernel a chain begins. The values are those of enum nf_inet_hooks, whose last one, ingress, also
// stands for that of the family netdev.
type hook int

const (
	noHook     hook = -1 // only other chains lead there
	prerouting hook = unix.NF_INET_PRE_ROUTING
	input      hook = unix.NF_INET_LOCAL_IN
	forward    hook = unix.NF_INET_FORWARD
	ingress    hook = 5 // NF_INET_INGRESS
)

func (h hook) String() string {
	names := map[hook]string{prerouting: "prerouting", input: "input", forward: "forward", ingress: "ingress"}
	return names[h]
}

// place is the table of a chain. Names are unique within it.
type place struct {
	backend backend
	family  string // nft's word: ip, ip6, inet, netdev, bridge, arp
	table   string
}

// chain is a list of rules.
type chain struct {
	place
	name     string
	hook     hook
	priority int
	nat      bool // only the first packet of a connection goes through it
	rules    int
	jumps    []jump
	uses     int  // nftables: by its own rules and by all that leads to it
	mapped   bool // a verdict map leads to it, from where is not known
}

// jump is a rule that leads to another chain of the same table.
type jump struct {
	to          string
	conditional bool
}

func (c *chain) String() string { return c.family + " " + c.table + " " + c.name }

// from names the chain's family, for evidence.
func (c *chain) source() string {
	if c.backend == iptables {
		return "iptables-legacy-save"
	}
	return "the kernel's nftables"
}

// chains is a ruleset in the making.
type chains map[chainKey]*chain

type chainKey struct {
	place
	name string
}

// at returns the chain of a name, which is new if need be.
func (c chains) at(p place, name string) *chain {
	key := chainKey{p, name}
	if c[key] == nil {
		c[key] = &chain{place: p, name: name, hook: noHook}
	}
	return c[key]
}

// readRules reads all rules. What cannot be read is an error in the result; only when nothing can be, it is returned.
func readRules(ctx context.Context, h *host) (*ruleset, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	all, old := chains{}, chains{}
	done := make(chan error)
	go func() { done <- readLegacy(ctx, h, old) }()
	nft, legacy := readNftables(ctx, all), <-done
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

// findMapped marks the chains that have more uses than rules and jumps: the others are elements of verdict maps.
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

// to is the chain that a rule of c jumps to, nil if it is not known.
func (r *ruleset) to(c *chain, j jump) *chain { return r.byKey[chainKey{c.place, j.to}] }

// below lists the chain and all that its rules lead to.
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

// reached lists the chains that packets which come in can get to, in the ruleset's order. Those that a verdict map leads to
// are taken to be among them.
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

// met counts the rules that a packet goes through: all of the chain, all chains that are jumped to without a condition,
// and the longest of those with one, since conditions mostly exclude each other. What verdict maps lead to is not counted. known holds what is counted already;
// the kernel lets no chain lead to itself.
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
