// SPDX-License-Identifier: Apache-2.0

package ban

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/floodwall/floodwall/internal/engine/manifest"
)

// Forever is the duration of a Ban that does not expire.
const Forever = time.Duration(math.MaxInt64)

// Never is the end of a Ban that does not expire. The time until then is Forever.
var Never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// After returns the end of a ban that starts now and lasts for d. It returns the zero time for d = 0, which means the timeout of the set.
func After(d time.Duration) time.Time {
	switch d {
	case 0:
		return time.Time{}
	case Forever:
		return Never
	}
	return time.Now().Add(d)
}

// Ban is an entry of a dynamic set, or a request to add one.
type Ban struct {
	Prefix netip.Prefix
	Set    string    // name of the dynamic set that has the entry; a request does not use it
	Until  time.Time // the end; Never: the ban does not expire; zero in a request: the set's timeout applies
	Why    string
	Rule   string // the rule whose limit was exceeded; Origin is then Automatic

	// Origin says who asks for the ban; empty means Manual. When the set is full, a ban by a program is evicted to make space for a ban by a person.
	// A ban by a program never changes an entry that a person made. If two programs ban the same prefix, the set keeps the ban that ends later.
	Origin Origin

	// Replace, in a request, lets this ban shorten an existing entry of the same origin. Without Replace the later end stays.
	Replace bool
	Range   int // consecutive requests with the same Range other than 0 are the pieces of one range: all are added, or none
}

// SetError says why a set cannot be used for a request.
type SetError struct{ Problem, Remedy string }

func (e *SetError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *SetError) Hint() string { return e.Remedy }

// Refusal says why one entry of a Block or Unblock was not changed.
type Refusal struct {
	Index int // of the entry in the call
	Err   error
}

// Refusals are all refusals of one call, in the order of the call's entries. The call has changed all its other entries.
type Refusals []Refusal

func (r Refusals) Error() string {
	return fmt.Sprintf("%v (and %d more)", r[0].Err, len(r)-1)
}

// Outcome is the result of a Block or Unblock.
type Outcome struct {
	Changed []int          // indices of the entries that were added, changed or removed
	New     map[Origin]int // number of prefixes that had no entry before, by the origin of the ban
	Refused Refusals       // the entries that were refused
}

// Set is a dynamic set in one place of the kernel. Block adds bans. Unblock removes only entries whose prefix is equal to a given prefix and that
// belong to the given owner.
type Set interface {
	Block(ctx context.Context, bans []Ban) (Outcome, error)
	Unblock(ctx context.Context, prefixes []netip.Prefix, of Owner) (Outcome, error)
	List(ctx context.Context) ([]Ban, error)
	Each(ctx context.Context, fn func(Ban)) error // calls fn for each entry that List would return
	Count(ctx context.Context) (int, error)
}

// Named finds a dynamic set in a manifest by its name. The name "" stands for the only dynamic set, or for the set with the name "bans" if there are
// several. Named returns a SetError when the manifest has no such set, or when "" is ambiguous.
func Named(m *manifest.Manifest, name string) (manifest.Set, error) {
	var names []string
	for _, s := range m.Sets {
		if s.Dynamic < 0 || s.Local {
			continue
		}
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	switch {
	case len(names) == 0:
		return manifest.Set{}, &SetError{"the policy that runs has no dynamic set",
			"give it one, `bans: {dynamic: true, max: 100000, timeout: 1h}` under sets, a rule that drops `from: $bans`, and apply"}
	case name != "":
		return manifest.Set{}, &SetError{fmt.Sprintf("the policy that runs has no dynamic set %q", name),
			"it has " + strings.Join(names, ", ")}
	case len(names) == 1:
		return Named(m, names[0])
	case slices.Contains(names, "bans"):
		return Named(m, "bans")
	}
	return manifest.Set{}, &SetError{"the policy that runs has several dynamic sets",
		"say which with --set: " + strings.Join(names, ", ")}
}

// Blocked is the JSON form of an entry.
type Blocked struct {
	Prefix  netip.Prefix `json:"prefix"`
	Set     string       `json:"set"`
	Expires *float64     `json:"expires_in,omitempty"` // seconds from now; absent: never
	Why     string       `json:"why,omitempty"`
	Origin  Origin       `json:"origin"`
	Rule    string       `json:"rule,omitempty"` // the rule whose limit was exceeded, when Origin is Automatic
	Node    string       `json:"node,omitempty"` // the node that banned it, when Origin is Fleet
}

// Shown returns entries in their JSON form.
func Shown(list []Ban) []Blocked {
	shown := make([]Blocked, len(list))
	for i, b := range list {
		shown[i] = Blocked{Prefix: b.Prefix, Set: b.Set, Why: b.Why, Origin: b.Origin, Rule: b.Rule, Node: b.Node()}
		if b.Until != Never {
			left := time.Until(b.Until).Seconds()
			shown[i].Expires = &left
		}
	}
	return shown
}
