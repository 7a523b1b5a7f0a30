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

// Ban is an entry to put into a dynamic set.
type Ban struct {
	Prefix netip.Prefix
	For    time.Duration // 0: the set's timeout; Forever: none
	Until  time.Time     // counts in place of For unless it is zero: the end stays, however long the ban waits to be entered
	Why    string
	Range  int // bans behind each other with the same number, not 0, are one range: all are entered, or none

	// Origin says who asks, Manual when it is empty. A ban that no person asked for gives way to those of persons when the set is
	// full, and changes none of theirs. Of two such bans of one prefix, the one that ends later stays.
	Origin Origin
	Rule   string // whose limit was exceeded: the origin is Automatic then

	// Replace gives an entry of the same origin the end of this ban also when that comes sooner.
	Replace bool
}

// SetError says that a set cannot be used for a request.
type SetError struct{ Problem, Remedy string }

func (e *SetError) Error() string { return e.Problem }

// Hint is the remedy.
func (e *SetError) Hint() string { return e.Remedy }

// Refusal says why one entry of a Block or Unblock was not changed.
type Refusal struct {
	Index int // of the entry in the call
	Err   error
}

// Refusals are all of a call, in its order. The other entries were changed.
type Refusals []Refusal

func (r Refusals) Error() string {
	return fmt.Sprintf("%v (and %d more)", r[0].Err, len(r)-1)
}

// Outcome is what became of a Block or Unblock.
type Outcome struct {
	Changed int
	Kept    []int          // indices of bans that left the entry of their prefix as it was
	New     map[Origin]int // prefixes that had no entry before, by who asked for them
	Refused Refusals       // single entries
}

// Set is a dynamic set where it is in the kernel. Block enters bans, and Unblock removes the owner's entries of exactly these
// prefixes.
type Set interface {
	Block(ctx context.Context, bans []Ban) (Outcome, error)
	Unblock(ctx context.Context, prefixes []netip.Prefix, of Owner) (Outcome, error)
	List(ctx context.Context) ([]Blocked, error)
	Each(ctx context.Context, fn func(Blocked)) error // what List has, one by one
	Count(ctx context.Context) (int, error)
}

// Named finds the dynamic set of a name in a manifest: "" is the only one there is, or the one named bans. It returns a
// SetError when the manifest has no such set, or when "" may mean several.
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

// Blocked is an entry of a dynamic set.
type Blocked struct {
	Prefix  netip.Prefix `json:"prefix"`
	Set     string       `json:"set"`
	Expires *float64     `json:"expires_in,omitempty"` // seconds from now; absent: never
	Why     string       `json:"why,omitempty"`
	Origin  Origin       `json:"origin"`
	Rule    string       `json:"rule,omitempty"` // whose limit was exceeded, when Origin is Automatic
	Node    string       `json:"node,omitempty"` // that banned it, when Origin is Fleet
}
