// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"errors"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// Exchanged is a set whose content was replaced.
type Exchanged struct {
	Set     string `json:"set"`
	Entries int    `json:"entries"`
	Before  int    `json:"entries_before"`
}

// Change has new contents for live sets.
type Change struct {
	Next    []manifest.Live       // the new state of all live sets for the manifest
	Content map[string]*addrs.Set // new contents by the name of the set; sets that do not change are absent
	Done    []Exchanged           // the replaced sets, to be reported
}

// Changed reads the present contents of the live sets of a running policy. If `all` is true it reads all sets, else only sets whose copy or database
// has changed. A set that cannot be read keeps its content; Changed then returns both the change and an error.
func Changed(store feed.Store, m *manifest.Manifest, all bool) (*Change, error) {
	x := &Change{Next: slices.Clone(m.Live), Content: map[string]*addrs.Set{}}
	var allowed []feed.AllowEntry
	var errs []error
	for i := range x.Next {
		l := &x.Next[i]
		origin, err := Origin(store, l)
		if err != nil || origin == l.Origin && !all {
			errs = append(errs, err)
			continue
		}
		content, err := Content(store, l)
		if content == nil || err != nil {
			errs = append(errs, err)
			continue
		}
		if allowed == nil && l.Feed != nil {
			allowed = Allowlist(m.NeverSet(), m.Operators)
		}
		before := *l
		content = Screen(l, content, allowed)
		if l.Origin = origin; l.Sum == before.Sum && origin == before.Origin {
			*l = before
			continue
		}
		x.Content[l.Set] = content
		if l.Sum != before.Sum {
			x.Done = append(x.Done, Exchanged{l.Set, l.Entries, before.Entries})
		}
	}
	return x, errors.Join(errs...)
}

// Applied returns a copy of the program p with the new contents.
func (x *Change) Applied(p *ir.Program) *ir.Program {
	out := *p
	out.Sets = slices.Clone(p.Sets)
	for i := range out.Sets {
		if set := x.Content[out.Sets[i].Name]; set != nil && out.Sets[i].Live {
			out.Sets[i].Static = set
		}
	}
	return &out
}
