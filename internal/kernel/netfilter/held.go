// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// Held describes the parts of a generation that exist in the kernel, found by the generation's name. It is read from the kernel itself. So it
// includes parts that a tool cannot list, and parts that the other kind of iptables has made.
type Held struct {
	Kind   Kind
	Name   string
	chains []heldChain
	sets   []string // of ipset
}

// heldChain is a place in which a generation has chains of iptables.
type heldChain struct {
	version, table string
	older          bool // made by iptables-legacy
}

// String names the generation in a form in which a person can find it.
func (h Held) String() string {
	switch {
	case h.Kind == KindNft:
		return "table inet " + h.Name
	case len(h.chains) == 0:
		return "the ipsets " + setsPrefix(h.Name) + "*"
	case slices.ContainsFunc(h.chains, func(c heldChain) bool { return c.older }):
		return "the chains " + h.Name + "-* of iptables-legacy"
	}
	return "the chains " + h.Name + "-* of iptables"
}

// ListHeld lists the generations in the kernel whose names consist of prefix and a number. For iptables the names are in capitals. If it lacks the
// rights to ask the kernel, it returns only the generations that it could find, and no error.
func ListHeld(prefix string) (list []Held, err error) {
	tables, err := new(Nft).Tables(context.Background(), prefix)
	for _, name := range tables {
		list = append(list, Held{Kind: KindNft, Name: name})
	}
	for _, find := range []func(string, func(string) *Held) error{heldSets, heldChains, heldOlderChains} {
		failed := find(prefix, func(name string) *Held {
			i := slices.IndexFunc(list, func(h Held) bool { return h.Kind == KindIptables && h.Name == name })
			if i < 0 {
				i, list = len(list), append(list, Held{Kind: KindIptables, Name: name})
			}
			return &list[i]
		})
		err = errors.Join(err, failed)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, os.ErrPermission) {
		err = nil
	}
	return list, err
}

// generationOf returns the name of the generation of iptables to which a chain or a set belongs, from the start of its name. It returns "" if it
// belongs to none.
func generationOf(name, prefix string) string {
	number, ok := strings.CutPrefix(strings.ToUpper(name), strings.ToUpper(prefix))
	number, _, _ = strings.Cut(number, "-")
	if !ok || numbered([]string{prefix + number}, prefix, nil) == nil {
		return ""
	}
	return strings.ToUpper(prefix) + number
}

// heldSets finds ipsets. If the module ip_set is not loaded, there are no ipsets, and heldSets does not load the module.
func heldSets(prefix string, of func(string) *Held) error {
	if _, err := os.Stat("/sys/module"); err == nil {
		if _, err := os.Stat("/sys/module/ip_set"); err != nil {
			return nil
		}
	}
	names, err := ipsetNames()
	for _, set := range names {
		if name := generationOf(set, prefix); name != "" && strings.HasPrefix(set, prefix) {
			h := of(name)
			h.sets = append(h.sets, set)
		}
	}
	return err
}

// heldChains finds chains of iptables-nft.
func heldChains(prefix string, of func(string) *Held) error {
	for version, family := range map[string]uint8{"4": unix.NFPROTO_IPV4, "6": unix.NFPROTO_IPV6} {
		list, err := nftable.Chains(family, "")
		if err != nil {
			return err
		}
		for _, c := range list {
			if name := generationOf(c.Name, prefix); name != "" && strings.HasPrefix(c.Name, name) && slices.Contains(iptablesTables, c.Table) {
				of(name).add(heldChain{version: version, table: c.Table})
			}
		}
	}
	return nil
}

// heldOlderChains finds chains of iptables-legacy. A chain starts with an entry that has the chain's name. In the entry, the name follows a byte with
// another meaning, and ends with a 0 (struct xt_error_target of uapi/linux/netfilter/x_tables.h).
func heldOlderChains(prefix string, of func(string) *Held) error {
	for _, version := range []string{"4", "6"} {
		names, err := os.ReadFile(oldNames(version))
		if err != nil { // no iptables-legacy, or only root may read the file
			continue
		}
		for _, table := range strings.Fields(string(names)) {
			if !slices.Contains(iptablesTables, table) {
				continue
			}
			rules, err := oldRules(version, table)
			if err != nil {
				return err
			}
			for rest := rules; ; {
				at := bytes.Index(rest, []byte(strings.ToUpper(prefix)))
				if at < 0 {
					break
				}
				rest = rest[at:]
				if name := generationOf(unix.ByteSliceToString(rest), prefix); name != "" {
					of(name).add(heldChain{version: version, table: table, older: true})
				}
				rest = rest[1:]
			}
		}
	}
	return nil
}

func (h *Held) add(c heldChain) {
	if !slices.Contains(h.chains, c) {
		h.chains = append(h.chains, c)
	}
}

// holdsIPv6 reports whether the kernel has IPv6 chains of any instance.
func holdsIPv6() (held bool, err error) {
	const all = "FLOODWALL"
	list, err := nftable.Chains(unix.NFPROTO_IPV6, "")
	for _, c := range list {
		held = held || strings.HasPrefix(c.Name, all)
	}
	names, _ := os.ReadFile(oldNames("6")) // without the file there are no tables
	for _, table := range strings.Fields(string(names)) {
		rules, failed := oldRules("6", table)
		held, err = held || bytes.Contains(rules, []byte(all)), errors.Join(err, failed)
	}
	return held, err
}

// Decides reports whether the generation decides about packets, as far as that is known.
func (h Held) Decides(ctx context.Context) bool {
	if h.Kind == KindNft {
		_, state, err := new(Nft).Trial(ctx, h.Name)
		return err != nil || state.Decides()
	}
	if len(h.chains) == 0 {
		return false
	}
	trial := guardSet(h.Name, iptablesTrial, &family{version: h.chains[0].version})
	ipset, err := find("ipset", "ipset")
	if err != nil || !slices.Contains(h.sets, trial) {
		return true
	}
	_, there, err := (&Iptables{ipset: ipset}).left(ctx, trial)
	return there || err != nil
}

// Removable returns an error when RemoveHeld needs a program that is missing. Tables of nftables need no program.
func Removable(list []Held) error {
	_, _, err := removers(list)
	return err
}

// RemoveHeld removes all given generations. For chains it uses the kind of iptables that made them.
func RemoveHeld(ctx context.Context, list []Held) error {
	for _, h := range list {
		if h.Kind == KindNft {
			if err := removeNftTable(h.Name); err != nil {
				return err
			}
		}
	}
	families, ipset, err := removers(list)
	if err != nil {
		return err
	}
	for _, f := range families {
		for _, h := range list {
			if h.Kind != KindIptables {
				continue
			}
			if err := f.remove(ctx, h.Name); err != nil {
				return fmt.Errorf("removing %s: %w", h, err)
			}
		}
	}
	for _, h := range list {
		if err := ipset.destroy(ctx, h.sets); err != nil {
			return fmt.Errorf("removing the ipsets %s*: %w", setsPrefix(h.Name), err)
		}
	}
	return nil
}

// removers returns the programs that remove the given generations of iptables: iptables of each kind and family that made chains of them, and ipset.
func removers(list []Held) (families []*family, ipset *Iptables, err error) {
	ipset = new(Iptables)
	made := map[heldChain]bool{}
	var errs []error
	for _, h := range list {
		if len(h.sets) > 0 && ipset.ipset.path == "" {
			ipset.ipset, err = find("ipset", "ipset")
			errs = append(errs, err)
		}
		for _, c := range h.chains {
			if c.table = ""; made[c] {
				continue
			}
			made[c] = true
			f, err := familyOf(c)
			families, errs = append(families, f), append(errs, err)
		}
	}
	return families, ipset, errors.Join(errs...)
}

// familyOf returns iptables of the kind that made the given chains.
func familyOf(c heldChain) (*family, error) {
	name := map[string]string{"4": "iptables", "6": "ip6tables"}[c.version]
	kind := name + "-nft"
	if c.older {
		kind = name + "-legacy"
	}
	f := &family{version: c.version}
	var missing error
	for _, n := range []string{kind, name} {
		err := f.find(n)
		if err == nil && (n == kind || f.older() == c.older) {
			return f, nil
		}
		if missing == nil {
			missing = &MissingError{Tool: n + "-restore", Package: "iptables"}
		}
	}
	return nil, missing
}
