package operate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/ban"
)

// MaxPage is how many entries a page has at most.
const MaxPage = 10_000

// Page is a part of the entries of a dynamic set, by address.
type Page struct {
	Set     string        `json:"set"`
	Entries []ban.Blocked `json:"entries"`
	Next    *netip.Prefix `json:"next,omitempty"` // the last entry, after which the next page begins; absent: there is no more
}

// Entries are those of a set that come after a prefix, from the start for the zero prefix, n of them at most. It keeps no more
// than that in memory where the set is in XDP.
func (h Host) Entries(ctx context.Context, set string, after netip.Prefix, n int) (Page, error) {
	if n < 1 || n > MaxPage {
		return Page{}, fmt.Errorf("a page of %d entries: it has 1 to %d", n, MaxPage)
	}
	var kept []ban.Blocked // in no order; the n lowest of those that were seen, and up to n more
	err := h.EachBlocked(ctx, set, func(b ban.Blocked) {
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
	page := Page{Set: set, Entries: append([]ban.Blocked{}, lowest(kept, n+1)...)}
	if len(page.Entries) > n {
		page.Entries = page.Entries[:n]
		page.Next = &page.Entries[n-1].Prefix
	}
	return page, nil
}

// lowest sorts a list, and cuts what is over n.
func lowest(list []ban.Blocked, n int) []ban.Blocked {
	slices.SortFunc(list, func(a, b ban.Blocked) int { return a.Prefix.Compare(b.Prefix) })
	return list[:min(len(list), n)]
}
