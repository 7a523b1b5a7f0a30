// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// iptablesComment is the longest comment of an entry, IPSET_MAX_COMMENT_SIZE of include/uapi/linux/netfilter/ipset/ip_set.h.
const iptablesComment = 255

// kind returns the elements that a set can hold, from the output of ipset.
func (x *Iptables) kind(ctx context.Context, set string) (setKind, error) {
	sets, err := x.headers(ctx, set)
	if err != nil {
		return setKind{}, fmt.Errorf("set %s: %w", set, err)
	}
	s := sets[set]
	if s.kind != "hash:net" && s.kind != "hash:ip" {
		return setKind{}, fmt.Errorf("set %s is of the type %q, which does not hold addresses alone", set, s.kind)
	}
	return setKind{
		name: set, six: strings.Contains(s.header, " family inet6 "), prefixes: s.kind == "hash:net",
		timeouts: strings.Contains(s.header, " timeout "), comments: strings.Contains(s.header, " comment "),
		longestComment: iptablesComment,
	}, nil
}

// Insert adds entries to a set. An existing entry gets the new timeout and comment. After an error, the entries before the line in the error were
// added, because ipset has no transactions.
func (x *Iptables) Insert(ctx context.Context, set string, elements []Element) error {
	k, err := x.kind(ctx, set)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range elements {
		if err := k.check(e); err != nil {
			return err
		}
		timeout := ""
		if e.Timeout > 0 {
			timeout = " timeout " + iptablesTimeout(e.Timeout)
		}
		for _, p := range entries(e.Prefix) {
			lines = append(lines, "add "+set+" "+p+timeout+k.comment(e.Comment))
		}
	}
	if err := x.restoreSets(ctx, lines...); err != nil {
		return fmt.Errorf("inserting into set %s: %w", set, err)
	}
	return nil
}

// iptablesTimeout returns a timeout in whole seconds, rounded up. ipset accepts at most 2^31/1000 (IPSET_MAX_TIMEOUT). For the constant never and
// longer times it returns 0, which means no timeout.
func iptablesTimeout(d time.Duration) string {
	const longest = 2147483 * time.Second
	switch {
	case d >= never:
		return "0"
	case d > longest:
		d = longest
	}
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// entries returns a prefix as entries of a hash:net. Such a set cannot hold a prefix of length 0, so this prefix becomes two entries.
func entries(p netip.Prefix) []string {
	switch {
	case p.IsSingleIP():
		return []string{p.Addr().String()}
	case p.Bits() > 0:
		return []string{p.String()}
	case p.Addr().Is4():
		return []string{"0.0.0.0/1", "128.0.0.0/1"}
	}
	return []string{"::/1", "8000::/1"}
}

// Delete removes prefixes from a set. It ignores a prefix to which no entry is equal.
func (x *Iptables) Delete(ctx context.Context, set string, list []netip.Prefix) error {
	k, err := x.kind(ctx, set)
	if err != nil {
		return err
	}
	var lines []string
	for _, p := range list {
		if err := k.check(Element{Prefix: p}); err != nil {
			return err
		}
		for _, entry := range entries(p) {
			lines = append(lines, "del "+set+" "+entry)
		}
	}
	if err := x.restoreSets(ctx, lines...); err != nil {
		return fmt.Errorf("deleting from set %s: %w", set, err)
	}
	return nil
}

// Elements lists the entries of a set, with the time left in whole seconds.
func (x *Iptables) Elements(ctx context.Context, set string) ([]Element, error) {
	out, err := x.ipset.run(ctx, "", "save", set)
	if err != nil {
		return nil, fmt.Errorf("entries of set %s: %w", set, err)
	}
	var list []Element
	for line := range strings.Lines(out) {
		w := words(strings.TrimSpace(line))
		if len(w) < 3 || w[0] != "add" {
			continue
		}
		e := Element{Comment: wordAfter(w, "comment")}
		if e.Prefix, err = readEntry(w[2]); err != nil {
			return nil, fmt.Errorf("entries of set %s: %w", set, err)
		}
		seconds, _ := strconv.Atoi(wordAfter(w, "timeout"))
		e.Timeout = time.Duration(seconds) * time.Second
		list = append(list, e)
	}
	return list, nil
}

func wordAfter(list []string, word string) string {
	at := slices.Index(list[3:], word)
	if at < 0 || at+4 >= len(list) {
		return ""
	}
	return list[at+4]
}

func readEntry(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	a, err := netip.ParseAddr(text)
	return netip.PrefixFrom(a, a.BitLen()), err
}
