// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/ban"
)

// MaxPage is the largest number of entries of a page.
const MaxPage = 10_000

// Page is a part of the entries of a dynamic set, by address.
type Page struct {
	Set     string        `json:"set"`
	Entries []ban.Blocked `json:"entries"`
	Next    *netip.Prefix `json:"next,omitempty"` // the last entry of this page; the next page starts after it; absent on the last page
}

// Entries returns at most n entries of a set, sorted by prefix. It starts after the given prefix, or at the first entry if the prefix is zero. For a
// set in XDP it keeps at most 2n entries in memory.
func (h Host) Entries(ctx context.Context, set string, after netip.Prefix, n int) (Page, error) {
	if n < 1 || n > MaxPage {
		return Page{}, fmt.Errorf("a page of %d entries: it has 1 to %d", n, MaxPage)
	}
	var kept []ban.Ban // unsorted: the n lowest entries up to now, and up to n further entries
	err := h.EachBlocked(ctx, set, func(b ban.Ban) {
		if after.IsValid() && b.Prefix.Compare(after) <= 0 {
			return
		}
		if kept = append(kept, b); len(kept) == 2*n+1 {
			kept = lowest(kept, n+1)
		}
	})
	if err != nil {
		return Page{}, err
	}
	page := Page{Set: set, Entries: ban.Shown(lowest(kept, n+1))}
	if len(page.Entries) > n {
		page.Entries = page.Entries[:n]
		page.Next = &page.Entries[n-1].Prefix
	}
	return page, nil
}

// lowest returns the first n entries of a list in the order of their prefixes. It sorts the list.
func lowest(list []ban.Ban, n int) []ban.Ban {
	slices.SortFunc(list, func(a, b ban.Ban) int { return a.Prefix.Compare(b.Prefix) })
	return list[:min(len(list), n)]
}
