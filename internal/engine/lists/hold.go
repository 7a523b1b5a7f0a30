// SPDX-License-Identifier: Apache-2.0

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

// A HeldError says that a set of a database keeps its content. With the new content the policy could drop an operator, or an address that this host
// needs.
type HeldError struct {
	Set    string
	Joins  bool // true: the new database adds the address to the set; false: it removes the address
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

// Hold removes sets of databases from a change if rules could drop a needed address only with the new content. A needed address is one of an operator
// of the policy, or one that the host needs. p is the program with the old contents. The error has a *HeldError for each removed set.
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

// heldBy returns a *HeldError when the new content adds or removes a needed address, and rules could therefore drop the address.
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
			continue // not a valid prefix
		}
		one := b.Set()
		joins := join && joining.Overlaps(one)
		if joins || leave && leaving.Overlaps(one) {
			return &HeldError{p.Sets[set].Name, joins, feed.Removed(n)}
		}
	}
	return nil
}

// harms reports whether rules can drop an address because it joins a set, and whether they can because it leaves the set. It ignores the other
// conditions of the rules, because an operator can connect to any port.
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
