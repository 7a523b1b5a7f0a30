package lists

import (
	"errors"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// Exchanged is a set that has another content.
type Exchanged struct {
	Set     string `json:"set"`
	Entries int    `json:"entries"`
	Before  int    `json:"entries_before"`
}

// Change is other contents for live sets.
type Change struct {
	Next    []manifest.Live       // what the manifest is to say of all live sets
	Content map[string]*addrs.Set // by the set; those that stay are not there
	Done    []Exchanged           // what is to be said of it
}

// Changed reads what the live sets of a policy that runs are to hold now. With all it looks at the content of all sets, else only at
// those of which the copy or the database is another. A set that cannot be read stays; the error says so beside the change.
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

// Applied is a program with the contents.
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
