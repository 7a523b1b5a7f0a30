// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// batch is the largest number of elements in one transaction; nft needs about 3 kB of memory for each.
const batch = 50_000

// nftComment is the length of the longest comment of an element in bytes: NFTNL_UDATA_COMMENT_MAXLEN of libnftnl without the final 0.
const nftComment = 127

// Insert adds elements to a set, 50,000 in a transaction. An existing element gets a new timeout, and keeps its comment. Elements that overlap other
// elements are not added; the returned *OverlapError lists them. After any other error, the transactions before the failed one have taken effect.
func (n *Nft) Insert(ctx context.Context, table, set string, elements []Element) error {
	d, err := declared(table, set)
	if err != nil {
		return err
	}
	for _, e := range elements {
		if err := d.check(e); err != nil {
			return err
		}
	}
	sorted := last(elements)
	fit, overlaps := apart(sorted, nil)
	err = n.addAll(ctx, d, fit)
	if overlapped(err) {
		there, listErr := n.Elements(ctx, table, set)
		if listErr != nil {
			return listErr
		}
		if fit, overlaps = apart(sorted, prefixes(there)); overlaps != nil {
			err = n.addAll(ctx, d, fit)
		}
	}
	if err != nil {
		return fmt.Errorf("inserting into set %s: %w", set, err)
	}
	if overlaps != nil {
		return &OverlapError{Set: set, Overlaps: overlaps}
	}
	return nil
}

// addAll adds elements, at most `batch` in each transaction. The elements must not overlap.
func (n *Nft) addAll(ctx context.Context, d *nftDeclared, elements []Element) error {
	for part := range slices.Chunk(elements, batch) {
		if err := n.add(ctx, d, part); err != nil {
			return err
		}
	}
	return nil
}

// nftDeclared is the declaration of a set in the kernel.
type nftDeclared struct {
	setKind
	of *nftable.Set
}

// declared reads the declaration of a set of addresses.
func declared(table, name string) (*nftDeclared, error) {
	sets, err := nftable.Sets(unix.NFPROTO_INET, table)
	if err != nil {
		return nil, err
	}
	s := nftable.Named(sets, name)
	if s == nil {
		return nil, fmt.Errorf("table %s has no set %s", table, name)
	}
	d := &nftDeclared{of: s}
	d.setKind = setKind{name: name, six: s.Type() == "ipv6_addr", prefixes: s.Interval(), timeouts: s.Times(), comments: true, longestComment: nftComment}
	if !d.six && s.Type() != "ipv4_addr" {
		return nil, fmt.Errorf("set %s of table %s holds %q, not addresses", name, table, s.Type())
	}
	return d, nil
}

// declaration returns the declaration of the set in nft's syntax. The kernel compares this declaration with the existing one.
func (d *nftDeclared) declaration() string {
	text, flags := "type "+d.of.Type(), []string(nil)
	if d.of.Size > 0 {
		text += fmt.Sprintf("; size %d", d.of.Size)
	}
	if d.prefixes {
		flags = append(flags, "interval")
	}
	if d.timeouts {
		flags = append(flags, "timeout")
	}
	if flags != nil {
		text += "; flags " + strings.Join(flags, ",")
	}
	if d.of.Timeout > 0 {
		text += "; timeout " + writeDuration(time.Duration(d.of.Timeout)*time.Millisecond)
	}
	if d.of.Merges {
		text += "; auto-merge"
	}
	return text
}

// overlapped reports whether nft or the kernel refused an element because it overlaps another one.
func overlapped(err error) bool {
	var e *ToolError
	return errors.As(err, &e) && (strings.Contains(e.Message, "File exists") ||
		strings.Contains(e.Message, "overlaps") || strings.Contains(e.Message, "conflicting intervals"))
}

func prefixes(elements []Element) []netip.Prefix {
	list := make([]netip.Prefix, len(elements))
	for i, e := range elements {
		list[i] = e.Prefix
	}
	return list
}

// add adds elements in one transaction. It writes them in another declaration of the set. Before an `add element`, nft 1.0.6 reads all elements of
// all sets of the table, which takes seconds for a large table. Before a declaration it does not.
func (n *Nft) add(ctx context.Context, d *nftDeclared, elements []Element) error {
	first, err := n.outdated(ctx, d, elements)
	if err != nil {
		return err
	}
	return n.script(ctx, first, d.with(elements))
}

// with returns a statement that declares the set with the given elements.
func (d *nftDeclared) with(elements []Element) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s { set %s { %s; elements = {\n", d.of.Table, d.name, d.declaration())
	for _, e := range elements {
		b.WriteString(member(e.Prefix))
		if e.Timeout > 0 {
			b.WriteString(" timeout " + writeDuration(min(max(e.Timeout, time.Millisecond), never)))
		}
		b.WriteString(d.comment(e.Comment) + ",\n")
	}
	b.WriteString("}; }; }")
	return b.String()
}

// without returns a statement that removes elements. All of them must exist.
func (d *nftDeclared) without(list []netip.Prefix) string {
	if len(list) == 0 {
		return ""
	}
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = member(p)
	}
	return fmt.Sprintf("delete element inet %s %s { %s }", d.of.Table, d.name, strings.Join(names, ", "))
}

// member returns a prefix in nft's syntax, in which a single address has no prefix length.
func member(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// outdated returns a statement that removes existing elements that must be inserted again. These are elements with Anew, and elements whose timeout
// the kernel cannot change.
func (n *Nft) outdated(ctx context.Context, d *nftDeclared, elements []Element) (string, error) {
	refreshes, err := n.canRefresh(ctx)
	if err != nil {
		return "", err
	}
	anew := slices.DeleteFunc(slices.Clone(elements), func(e Element) bool { return !e.Anew && (refreshes || !d.timeouts) })
	if len(anew) == 0 {
		return "", nil
	}
	there, err := n.Elements(ctx, d.of.Table, d.name)
	if err != nil {
		return "", err
	}
	return d.without(common(prefixes(anew), prefixes(there))), nil
}

// common lists the prefixes that are in both lists.
func common(a, b []netip.Prefix) (both []netip.Prefix) {
	in := make(map[netip.Prefix]bool, len(b))
	for _, p := range b {
		in[p] = true
	}
	for _, p := range a {
		if in[p] {
			both = append(both, p)
			in[p] = false
		}
	}
	return both
}

// probeTable is the name of a table that exists only while canRefresh tests the kernel. The table has no chain.
const probeTable = "floodwall-probe"

// kernelRefreshes is the cached result of canRefresh.
var kernelRefreshes atomic.Pointer[bool]

// canRefresh tests once whether adding an existing element renews its timeout, as in Linux since 6.12 ("netfilter: nf_tables: set element timeout
// update support").
func (n *Nft) canRefresh(ctx context.Context) (bool, error) {
	for _, known := range []*bool{n.refreshes, kernelRefreshes.Load()} {
		if known != nil {
			return *known, nil
		}
	}
	const short, long = time.Hour, 2 * time.Hour
	err := n.script(ctx, enter(probeTable, trialSet, short, false))
	if err == nil {
		err = n.script(ctx, enter(probeTable, trialSet, long, false))
	}
	var left time.Duration
	if err == nil {
		left, err = nftLeft(probeTable, trialSet)
	}
	if err = undo(ctx, err, func(ctx context.Context) error { return n.Remove(ctx, probeTable) }); err != nil {
		return false, fmt.Errorf("asking the kernel for timeouts: %w", err)
	}
	can := left > short
	kernelRefreshes.Store(&can)
	return can, nil
}

// Delete removes prefixes from a set. It ignores a prefix to which no element is equal.
func (n *Nft) Delete(ctx context.Context, table, set string, list []netip.Prefix) error {
	d, err := declared(table, set)
	if err != nil {
		return err
	}
	there, err := n.Elements(ctx, table, set)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(common(list, prefixes(there)), batch) {
		if err := n.drop(ctx, d, part); err != nil {
			return fmt.Errorf("deleting from set %s: %w", set, err)
		}
	}
	return nil
}

// drop removes existing elements. If the kernel can change timeouts, drop adds the elements again with a short timeout, so that they expire. nft
// 1.0.6 needs 20 s to delete 2,000 of 100,000 prefixes, and 50 ms to add them.
func (n *Nft) drop(ctx context.Context, d *nftDeclared, list []netip.Prefix) error {
	can, err := n.canRefresh(ctx)
	if err != nil {
		return err
	}
	if !can || !d.timeouts {
		return n.script(ctx, d.without(list))
	}
	const soon = time.Millisecond
	gone := make([]Element, len(list))
	for i, p := range list {
		gone[i] = Element{Prefix: p, Timeout: soon}
	}
	if err := n.script(ctx, d.with(gone)); err != nil {
		return err
	}
	const tick = 10 * time.Millisecond // the longest jiffy, by which the kernel's clock may be late
	time.Sleep(soon + tick)
	return nil
}

// Elements lists the elements of a set of addresses, with the time left in whole seconds. A range that is not a prefix is listed as several prefixes.
func (n *Nft) Elements(_ context.Context, table, set string) (list []Element, err error) {
	d, err := declared(table, set)
	if err == nil {
		d.of.Elements, err = nftable.Elements(unix.NFPROTO_INET, table, set)
	}
	var intervals []nftable.Interval
	if err == nil {
		intervals, err = d.of.Intervals()
	}
	if err != nil {
		return nil, fmt.Errorf("elements of set %s: %w", set, err)
	}
	for _, i := range intervals {
		e := Element{Comment: i.Of.Comment}
		if i.Of.Expires {
			e.Timeout = max((time.Duration(i.Of.Left) * time.Millisecond).Truncate(time.Second), time.Millisecond) // more than 0, which means no timeout
			if e.Timeout > never/2 {
				e.Timeout = 0
			}
		}
		first, _ := netip.AddrFromSlice(i.First) // Intervals has checked their length
		last, _ := netip.AddrFromSlice(i.Last)
		for _, e.Prefix = range netipx.IPRangeFrom(first, last).Prefixes() {
			list = append(list, e)
		}
	}
	return list, nil
}
