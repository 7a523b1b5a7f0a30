package lists

import (
	"errors"
	"fmt"
	"slices"

	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/addrs"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// A HeldError says that a set of a database stays as it is, since with its new content the policy could drop an operator, or what
// this host cannot do without.
type HeldError struct {
	Set    string
	Joins  bool // the address would come into the set; else it would leave it
	Needed feed.Removed
}

func (e *HeldError) Error() string {
	would := "no longer hold"
	if e.Joins {
		would = "hold"
	}
	return fmt.Sprintf("set %q stays as it is: by the new database it would %s %s (%s), which rules could drop then",
		e.Set, would, addrs.PrefixText(e.Needed.Prefix), e.Needed.Why)
}

// Hint says what to do.
func (e *HeldError) Hint() string {
	return "apply the policy again to take the database as it is: apply refuses what would drop your session"
}

// Hold takes those sets of databases out of a change with which rules could drop an operator of the policy, or what this host cannot
// do without, and could not before. p is the program with the contents before.
func (x *Change) Hold(m *manifest.Manifest, p *ir.Program) error {
	var errs []error
	var needed []feed.AllowEntry
	for i, s := range p.Sets {
		at := slices.IndexFunc(x.Next, func(l manifest.Live) bool { return l.Set == s.Name })
		next := x.Content[s.Name]
		if !s.Live || at < 0 || next == nil || x.Next[at].Geo == nil {
			continue
		}
		if needed == nil {
			needed = Allowlist(nil, m.Operators)
		}
		if err := heldBy(p, i, next, needed); err != nil {
			delete(x.Content, s.Name)
			x.Next[at] = *m.LiveOf(s.Name)
			x.Done = slices.DeleteFunc(x.Done, func(e Exchanged) bool { return e.Set == s.Name })
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// heldBy is a *HeldError when one of the needed addresses would come into a set or leave it to its harm.
func heldBy(p *ir.Program, set int, next *addrs.Set, needed []feed.AllowEntry) error {
	join, leave := harms(p, set)
	before := p.Sets[set].Static
	if before == nil {
		before = &addrs.Set{}
	}
	joining, leaving := next.Without(before), before.Without(next)
	for _, n := range needed {
		var b addrs.Builder
		if b.Add(n.Prefix) != nil {
			continue // no prefix, so no address
		}
		one := b.Set()
		joins := join && joining.Overlaps(one)
		if joins || leave && leaving.Overlaps(one) {
			return &HeldError{p.Sets[set].Name, joins, feed.Removed(n)}
		}
	}
	return nil
}

// harms reports whether rules can drop an address because it comes into a set, or because it leaves it. Other conditions of the
// rules are not asked: an operator can come over any port.
func harms(p *ir.Program, set int) (join, leave bool) {
	for _, r := range p.Rules {
		if r.Observe {
			continue
		}
		for _, m := range slices.Concat(r.Src, r.Dst) {
			if !slices.Contains(m.Sets, set) {
				continue
			}
			if (r.Verdict == ir.Pass) == m.Not {
				join = true
			} else {
				leave = true
			}
		}
	}
	return join, leave
}
