package netfilter

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Element is an entry of a dynamic set.
type Element struct {
	Prefix netip.Prefix
	// Timeout is the time for which the entry stays. When inserting, 0 means the set's default, and anything beyond 50 years means for
	// ever. In a list it is the time left, and 0 means for ever.
	Timeout time.Duration
	Comment string
	// Anew removes an entry that is there and inserts it again, in one transaction: nftables does not change the comment of an entry that
	// stays.
	Anew bool
}

// never stands for no timeout. Before Linux 6.12 a set with a default timeout takes no other value for it.
const never = 50 * 365 * day

// Overlap is a prefix that cannot be in a set beside another one.
type Overlap struct{ Prefix, With netip.Prefix }

// OverlapError lists what was not inserted: a set of nftables cannot hold a prefix and another one inside of it. All
// other elements of the same call are in the set.
type OverlapError struct {
	Set      string
	Overlaps []Overlap
}

func (e *OverlapError) Error() string {
	const shown = 5
	var list []string
	for _, o := range e.Overlaps[:min(shown, len(e.Overlaps))] {
		list = append(list, fmt.Sprintf("%s overlaps %s", o.Prefix, o.With))
	}
	if more := len(e.Overlaps) - shown; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("set %s: %s", e.Set, strings.Join(list, ", "))
}

// Hint is the remedy.
func (e *OverlapError) Hint() string {
	return "remove the entry that is in the set first; a larger prefix covers the smaller one anyway"
}

// ElementError says why an element does not fit a set. Nothing was inserted.
type ElementError struct {
	Set    string
	Prefix netip.Prefix
	Cause  string
}

func (e *ElementError) Error() string { return fmt.Sprintf("set %s: %s: %s", e.Set, e.Prefix, e.Cause) }

// setKind describes the elements that a set can hold.
type setKind struct {
	name           string
	six            bool // IPv6, else IPv4
	prefixes       bool // else single addresses
	timeouts       bool
	comments       bool
	longestComment int // bytes
}

// check says what is wrong with an element for the set.
func (k setKind) check(e Element) error {
	cause := ""
	switch {
	case !e.Prefix.IsValid() || e.Prefix != e.Prefix.Masked():
		cause = "no prefix, or one with bits behind its length"
	case e.Prefix.Addr().Is6() != k.six:
		cause = "not of the family of the set"
	case !k.prefixes && !e.Prefix.IsSingleIP():
		cause = "the set holds single addresses only"
	case e.Timeout < 0:
		cause = "a timeout below 0"
	case e.Timeout > 0 && !k.timeouts:
		cause = "the set has no timeouts"
	default:
		return nil
	}
	return &ElementError{Set: k.name, Prefix: e.Prefix, Cause: cause}
}

// comment is a comment in quotes, in the form that both tools accept: they have no escape for a quote, and end at a line's end.
func (k setKind) comment(text string) string {
	if text == "" || !k.comments {
		return ""
	}
	clean := strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		if r == '"' {
			return '\''
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return ` comment "` + shorten(clean, k.longestComment) + `"`
}

// last keeps the last of the elements with the same prefix, and sorts them so that a prefix precedes those inside it.
func last(elements []Element) []Element {
	byPrefix := make(map[netip.Prefix]Element, len(elements))
	for _, e := range elements {
		byPrefix[e.Prefix] = e
	}
	list := make([]Element, 0, len(byPrefix))
	for _, e := range byPrefix {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Element) int { return a.Prefix.Compare(b.Prefix) })
	return list
}

// apart splits elements, sorted by last, into those that overlap neither an earlier element nor one of the set, and the rest.
func apart(elements []Element, set []netip.Prefix) (fit []Element, overlaps []Overlap) {
	set = slices.Clone(set)
	slices.SortFunc(set, netip.Prefix.Compare)
	var widest netip.Prefix
	for _, e := range elements {
		if other, ok := overlapping(set, e.Prefix); ok {
			overlaps = append(overlaps, Overlap{e.Prefix, other})
		} else if widest.IsValid() && widest.Overlaps(e.Prefix) {
			overlaps = append(overlaps, Overlap{e.Prefix, widest})
		} else {
			fit, widest = append(fit, e), e.Prefix
		}
	}
	return fit, overlaps
}

// overlapping finds a prefix of a sorted set, in which none contains another, that overlaps p and is not p.
func overlapping(set []netip.Prefix, p netip.Prefix) (netip.Prefix, bool) {
	at, found := slices.BinarySearchFunc(set, p, netip.Prefix.Compare)
	if found {
		return netip.Prefix{}, false
	}
	for _, i := range []int{at - 1, at} {
		if i >= 0 && i < len(set) && set[i].Overlaps(p) {
			return set[i], true
		}
	}
	return netip.Prefix{}, false
}
