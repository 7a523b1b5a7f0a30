// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/addrs"
)

// filterSet is a dynamic set in netfilter.
type filterSet struct {
	tool    netfilter.Tool
	ruleset *netfilter.Ruleset
	names   netfilter.SetNames
	entry   manifest.Set
}

// NewFilterSet returns a dynamic set of the ruleset p. names are the names of the set in netfilter. entry is the description of the set in the
// manifest.
func NewFilterSet(t netfilter.Tool, p *netfilter.Ruleset, names netfilter.SetNames, entry manifest.Set) Set {
	return &filterSet{t, p, names, entry}
}

func (s *filterSet) Block(ctx context.Context, bans []Ban) (Outcome, error) {
	if len(bans) == 0 {
		return Outcome{}, nil
	}
	held, err := s.elements(ctx)
	if err != nil {
		return Outcome{}, err
	}
	space := newFilterSpace(s.entry, held)
	o := edit(len(bans), func(i int) error { return space.take(bans[i]) })
	o.New = space.fresh
	overlaps, after, err := s.replace(ctx, bans, o.Changed, space)
	if err != nil {
		return Outcome{}, err
	}
	o.Changed = slices.DeleteFunc(o.Changed, func(i int) bool {
		with, ok := overlaps[bans[i].Prefix.Masked()]
		if ok {
			o.Refused = append(o.Refused, Refusal{i, s.overlapping(bans[i].Prefix.Masked(), with)})
			space.fresh[bans[i].origin()]--
			after = after[:max(len(after)-1, 0)] // the refused ban needs no space, so one entry less must be removed
		}
		return ok
	})
	if err := s.remove(ctx, after); err != nil {
		return Outcome{}, err
	}
	return o, nil
}

// replace adds the bans with the indices in which. It returns the entries that the caller must then remove to make space for these bans. The kernel's
// set has space for the old and the new entries. Only a set that an earlier version made has not: then replace itself removes the old entries first.
func (s *filterSet) replace(ctx context.Context, bans []Ban, which []int, space *filterSpace) (overlaps map[netip.Prefix]netip.Prefix, after []netip.Prefix, err error) {
	overlaps, err = s.insert(ctx, bans, which, space.anew)
	if !netfilter.IsFull(err) {
		return overlaps, space.evicted, err
	}
	if err := s.remove(ctx, space.evicted); err != nil {
		return nil, nil, err
	}
	const collected = 100 * time.Millisecond
	for range 20 {
		if overlaps, err = s.insert(ctx, bans, which, space.anew); !netfilter.IsFull(err) {
			break
		}
		time.Sleep(collected)
	}
	return overlaps, nil, err
}

// insert adds the bans with the indices in which. It returns the bans that netfilter cannot hold because they overlap an existing entry.
func (s *filterSet) insert(ctx context.Context, bans []Ban, which []int, anew map[netip.Prefix]bool) (map[netip.Prefix]netip.Prefix, error) {
	grouped := map[string][]netfilter.Element{}
	for _, i := range which {
		e := elementOf(bans[i])
		e.Anew = anew[e.Prefix]
		name := s.names.Of(e.Prefix)
		grouped[name] = append(grouped[name], e)
	}
	overlaps := map[netip.Prefix]netip.Prefix{}
	for name, elements := range grouped {
		err := s.tool.Insert(ctx, s.ruleset, name, elements)
		var o *netfilter.OverlapError
		if err != nil && !errors.As(err, &o) {
			return nil, err
		}
		if o != nil {
			for _, one := range o.Overlaps {
				overlaps[one.Prefix] = one.With
			}
		}
	}
	return overlaps, nil
}

func (s *filterSet) overlapping(p, with netip.Prefix) error {
	return &SetError{fmt.Sprintf("%s overlaps %s in set %q, which nftables cannot hold side by side", addrs.PrefixText(p), addrs.PrefixText(with), s.entry.Name),
		fmt.Sprintf("unblock %s first, or leave it at that; target xdp holds both", addrs.PrefixText(with))}
}

func (s *filterSet) Unblock(ctx context.Context, prefixes []netip.Prefix, of Owner) (Outcome, error) {
	has, err := s.held(ctx)
	if err != nil {
		return Outcome{}, err
	}
	var gone []netip.Prefix
	o := edit(len(prefixes), func(i int) error {
		p := prefixes[i].Masked()
		switch b, there := has[p]; {
		case !there:
			return notBlocked(s.entry, p, dynamicsetWithin(has, p))
		case !of.Owns(b):
			return othersEntry(b)
		}
		delete(has, p)
		gone = append(gone, p)
		return nil
	})
	return o, s.remove(ctx, gone)
}

func dynamicsetWithin(has map[netip.Prefix]Ban, p netip.Prefix) bool {
	for q := range has {
		if q.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// held returns the entries of the set, by prefix.
func (s *filterSet) held(ctx context.Context) (map[netip.Prefix]Ban, error) {
	list, err := s.elements(ctx)
	has := make(map[netip.Prefix]Ban, len(list))
	for _, e := range list {
		has[e.Prefix] = elementAs(e, s.entry.Name)
	}
	return has, err
}

// elementOf converts a ban to an element of netfilter.
func elementOf(b Ban) netfilter.Element {
	return netfilter.Element{Prefix: b.Prefix.Masked(), Timeout: min(b.length(), forever), Comment: b.Text()}
}

// elementAs converts an element of netfilter to an entry of a set.
func elementAs(e netfilter.Element, set string) Ban {
	until := Never
	if e.Timeout > 0 {
		until = time.Now().Add(e.Timeout)
	}
	return Read(e.Prefix, set, e.Comment, until)
}

func (s *filterSet) elements(ctx context.Context) (all []netfilter.Element, err error) {
	for _, name := range s.names.Names() {
		some, err := s.tool.Elements(ctx, s.ruleset, name)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (s *filterSet) List(ctx context.Context) (list []Ban, err error) {
	err = s.Each(ctx, func(b Ban) { list = append(list, b) })
	return list, err
}

func (s *filterSet) Each(ctx context.Context, fn func(Ban)) error {
	elements, err := s.elements(ctx)
	for _, e := range elements {
		fn(elementAs(e, s.entry.Name))
	}
	return err
}

func (s *filterSet) Count(ctx context.Context) (int, error) {
	list, err := s.elements(ctx)
	return len(list), err
}

// forever is the timeout of a ban that does not end.
const forever = 100 * 365 * 24 * time.Hour
