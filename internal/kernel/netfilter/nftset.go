package netfilter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go4.org/netipx"
)

// batch is how many elements one transaction has at most; nft needs some 3 kB of memory for each.
const batch = 50_000

// nftComment is the longest comment of an element, NFTNL_UDATA_COMMENT_MAXLEN of libnftnl without the end.
const nftComment = 127

// Insert puts elements into a set, 50,000 in a transaction. One that is there gets its timeout anew, and keeps its
// comment. Those that overlap others are left out, and listed in an *OverlapError; after any other error the
// transactions before the one that it is about have been done.
func (n *Nft) Insert(ctx context.Context, table, set string, elements []Element) error {
	d, err := n.declared(ctx, table, set)
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

// addAll adds elements that do not overlap each other, some in each transaction.
func (n *Nft) addAll(ctx context.Context, d *nftDeclared, elements []Element) error {
	for part := range slices.Chunk(elements, batch) {
		if err := n.add(ctx, d, part); err != nil {
			return err
		}
	}
	return nil
}

// nftDeclared is a set as the kernel has it.
type nftDeclared struct {
	setKind
	table       string
	declaration string
}

// declared reads the declaration of a set of addresses.
func (n *Nft) declared(ctx context.Context, table, name string) (*nftDeclared, error) {
	t, err := n.sets(ctx, table)
	if err != nil {
		return nil, err
	}
	if t == nil || t.sets[name] == nil {
		return nil, fmt.Errorf("table %s has no set %s", table, name)
	}
	s := t.sets[name]
	d := &nftDeclared{table: table, declaration: strings.Join(s.statements, "; ")}
	d.setKind = setKind{name: name, prefixes: slices.Contains(s.flags, "interval"), timeouts: s.timeout,
		comments: true, longestComment: nftComment}
	switch s.kind {
	case "ipv4_addr", "ip saddr", "ip daddr":
	case "ipv6_addr", "ip6 saddr", "ip6 daddr":
		d.six = true
	default:
		return nil, fmt.Errorf("set %s of table %s holds %q, not addresses", name, table, s.kind)
	}
	return d, nil
}

// overlapped reports whether nft or the kernel refused an element because of another one.
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

// add adds elements in one transaction. It declares the set once more with them: nft 1.0.6 reads all elements of all
// sets of a table before an `add element`, seconds for a large one, but not before a declaration.
func (n *Nft) add(ctx context.Context, d *nftDeclared, elements []Element) error {
	first, err := n.outdated(ctx, d, elements)
	if err != nil {
		return err
	}
	return n.script(ctx, first, d.with(elements))
}

// with is a statement that declares the set with these elements.
func (d *nftDeclared) with(elements []Element) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s { set %s { %s; elements = {\n", d.table, d.name, d.declaration)
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

// without is a statement that removes elements; all of them must be there.
func (d *nftDeclared) without(list []netip.Prefix) string {
	if len(list) == 0 {
		return ""
	}
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = member(p)
	}
	return fmt.Sprintf("delete element inet %s %s { %s }", d.table, d.name, strings.Join(names, ", "))
}

// member is a prefix as nft writes it: a single address has no length.
func member(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// outdated is a statement that removes those of the elements that are there and that are to be Anew, or that the kernel would not give
// a new timeout.
func (n *Nft) outdated(ctx context.Context, d *nftDeclared, elements []Element) (string, error) {
	refreshes, err := n.canRefresh(ctx)
	if err != nil {
		return "", err
	}
	anew := slices.DeleteFunc(slices.Clone(elements), func(e Element) bool { return !e.Anew && (refreshes || !d.timeouts) })
	if len(anew) == 0 {
		return "", nil
	}
	there, err := n.Elements(ctx, d.table, d.name)
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

// probeTable is the name of a table that is there for the time of a question. It has no chain.
const probeTable = "floodwall-probe"

// kernelRefreshes is what the kernel has answered to canRefresh.
var kernelRefreshes atomic.Pointer[bool]

// canRefresh asks the kernel, once, whether adding an element that is there sets its timeout anew, as Linux does since
// 6.12 ("netfilter: nf_tables: set element timeout update support").
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

// Delete takes prefixes out of a set. Those that are not in it, exactly so, are passed over.
func (n *Nft) Delete(ctx context.Context, table, set string, list []netip.Prefix) error {
	d, err := n.declared(ctx, table, set)
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

// drop removes elements that are there. Where the kernel takes new timeouts it lets them expire: nft 1.0.6 needs 20 s
// to delete 2,000 of 100,000 prefixes, and 50 ms to add them.
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
	const tick = 10 * time.Millisecond // the longest jiffy: the kernel's clock may be that late
	time.Sleep(soon + tick)
	return nil
}

// Elements lists a set of addresses, with whole seconds that are left. A range that is no prefix becomes several.
func (n *Nft) Elements(ctx context.Context, table, set string) ([]Element, error) {
	objects, err := n.list(ctx, "list", "set", "inet", table, set)
	if err != nil {
		return nil, fmt.Errorf("elements of set %s: %w", set, err)
	}
	var list []Element
	for _, o := range objects {
		if o.Set == nil {
			continue
		}
		for _, raw := range o.Set.Elem {
			found, err := readElement(raw)
			if err != nil {
				return nil, fmt.Errorf("elements of set %s: %w", set, err)
			}
			list = append(list, found...)
		}
	}
	return list, nil
}

// readElement reads an element in JSON: a value, or an object with the value and its properties.
func readElement(raw json.RawMessage) ([]Element, error) {
	var whole struct {
		Elem *struct {
			Val     json.RawMessage
			Expires *int64
			Comment string
		}
	}
	if raw[0] == '{' {
		if err := json.Unmarshal(raw, &whole); err != nil {
			return nil, err
		}
	}
	e := Element{}
	if whole.Elem != nil {
		raw = whole.Elem.Val
		e.Comment = whole.Elem.Comment
		if left := whole.Elem.Expires; left != nil { // 0 in the last second
			e.Timeout = max(time.Duration(*left)*time.Second, time.Millisecond)
			if e.Timeout > never/2 {
				e.Timeout = 0
			}
		}
	}
	var list []Element
	values, err := readValue(raw)
	for _, p := range values {
		e.Prefix = p
		list = append(list, e)
	}
	return list, err
}

// readValue reads "ADDRESS", {"prefix": …} or {"range": […]}.
func readValue(raw json.RawMessage) ([]netip.Prefix, error) {
	var address netip.Addr
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &address); err != nil {
			return nil, err
		}
		return []netip.Prefix{netip.PrefixFrom(address, address.BitLen())}, nil
	}
	var value struct {
		Prefix *struct {
			Addr netip.Addr
			Len  int
		}
		Range []netip.Addr
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	if value.Prefix != nil {
		return []netip.Prefix{netip.PrefixFrom(value.Prefix.Addr, value.Prefix.Len)}, nil
	}
	if len(value.Range) != 2 {
		return nil, fmt.Errorf("%s is no address, prefix or range", raw)
	}
	return netipx.IPRangeFrom(value.Range[0], value.Range[1]).Prefixes(), nil
}
