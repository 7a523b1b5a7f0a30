package manifest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
)

// Temporary is a rule that is no part of the policy: it stands before all rules of the policy, and the kernel ends it at a time.
type Temporary struct {
	Name  string    `json:"name"`  // of the rule: no other temporary rule has it, and no rule of the policy
	Owner string    `json:"owner"` // who added it, as "auto": each owner changes its own rules
	Rule  string    `json:"rule"`  // one line, as it stands under rules
	Began time.Time `json:"began"`
	Until time.Time `json:"until"`
	// Ends is Until on CLOCK_MONOTONIC, which no step of the machine's clock changes; zero when only Until says it. A manifest does not
	// outlive that clock: the kernel keeps both. Nobody else is told of it: see Temporaries.
	Ends time.Duration `json:"-"`
	Why  string        `json:"why,omitempty"` // it was added
}

// Temporaries are the temporary rules of a manifest. As JSON each has its end on both clocks.
type Temporaries []Temporary

// kept is a temporary rule as a manifest has it.
type kept struct {
	Temporary
	Ends time.Duration `json:"ends,omitempty"`
}

// MarshalJSON writes the ends too.
func (l Temporaries) MarshalJSON() ([]byte, error) {
	list := []kept{}
	for _, t := range l {
		list = append(list, kept{t, t.Ends})
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Temporaries) UnmarshalJSON(text []byte) error {
	var list []kept
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*l = nil
	for _, k := range list {
		k.Temporary.Ends = k.Ends
		*l = append(*l, k.Temporary)
	}
	return nil
}

// Equal reports whether two are the same rule for the same time.
func (t Temporary) Equal(other Temporary) bool {
	return t.Name == other.Name && t.Owner == other.Owner && t.Rule == other.Rule && t.Why == other.Why && t.Began.Equal(other.Began) && t.Until.Equal(other.Until)
}

// clockStep is from where on a difference between Until and Ends is a clock that was set.
const clockStep = 3 * time.Second

// By is the rule with its times by the clock as it stands at now, which somebody may have set since the rule was added.
func (t Temporary) By(now time.Time) Temporary {
	if t.Ends == 0 {
		return t
	}
	step := now.Add(t.Ends - image.Monotonic()).Sub(t.Until.Round(0))
	if step.Abs() > clockStep {
		t.Began, t.Until = t.Began.Add(step), t.Until.Add(step).Truncate(time.Second).UTC()
	}
	return t
}

// Last has the rule end a while after now, on both clocks. now has the reading of the monotonic clock that time.Now gives.
func (t *Temporary) Last(now time.Time, d time.Duration) {
	end := now.Add(d)
	t.Until, t.Ends = end.UTC(), image.Monotonic()+time.Until(end)
}

// Timed are temporary rules of which each has its end on both clocks.
func Timed(list []Temporary, now time.Time) (timed []Temporary) {
	for _, t := range list {
		if t.Ends == 0 {
			t.Ends = image.Monotonic() + t.Until.Sub(now)
		}
		timed = append(timed, t.By(now))
	}
	return timed
}

// InForce are the temporary rules that have not ended at a time, the present one. Their times are by the clock as it stands then.
func InForce(list []Temporary, now time.Time) (left []Temporary) {
	for _, t := range list {
		if t = t.By(now); now.Before(t.Until) {
			left = append(left, t)
		}
	}
	return left
}

// GoOnWith has the manifest of a policy that follows another have its temporary rules. Where it has the same target in netfilter, their ruleset
// stays, with those that have ended. Else they are put into the kernel anew.
func (m *Manifest) GoOnWith(before *Manifest, now time.Time) {
	m.Temporary = InForce(before.Temporary, now)
	if before.TemporaryRuleset == nil || before.Target != m.Target {
		return
	}
	m.Temporary, m.TemporaryRuleset = before.Temporary, before.TemporaryRuleset
	for _, r := range before.Rules {
		if r.Temporary {
			m.Rules = append(m.Rules, r)
		}
	}
}

// TemporaryOf is the temporary rule that is the rule of this index, nil when that is one of the policy.
func (m *Manifest) TemporaryOf(rule int) *Temporary {
	i := rule - (len(m.Rules) - len(m.Temporary))
	if i < 0 || !m.Rules[rule].Temporary {
		return nil
	}
	t := m.Temporary[i].By(time.Now())
	return &t
}

// temporaryFingerprint is fingerprint for a temporary rule, which no rule of a policy has.
func temporaryFingerprint(t Temporary) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, "temporary", t.Owner, t.Name)
	return h.Sum64()
}

// SetTemporary has the manifest remember temporary rules, which program has as its first, in this order. They come last in
// the manifest, so that the policy's rules keep their places in it. With XDP each has a counter slot: the one that it has in one of the
// manifests of before, or one that no rule of them has. fresh are the slots that must begin at zero.
func (m *Manifest) SetTemporary(list []Temporary, program *ir.Program, before []*Manifest) (slots, fresh []uint32) {
	m.Temporary = list
	m.Rules = slices.DeleteFunc(slices.Clone(m.Rules), func(r Rule) bool { return r.Temporary })
	used, kept := map[uint32]bool{}, map[uint64]uint32{}
	for _, b := range append([]*Manifest{m}, before...) {
		for _, u := range b.UsedSlots() {
			used[u.Slot] = true
		}
		for _, r := range b.Rules {
			if r.Temporary {
				kept[r.Fingerprint] = r.Slot
			}
		}
	}
	next := uint32(image.SlotRules)
	for i, t := range list {
		r := program.Rules[i]
		key := temporaryFingerprint(t)
		slot, ok := kept[key]
		if !ok {
			for used[next] {
				next++
			}
			slot, used[next] = next, true
			fresh = append(fresh, slot)
		}
		slots = append(slots, slot)
		m.Rules = append(m.Rules, Rule{Name: t.Name, Verdict: r.Verdict.String(), Slot: slot, Stage: m.FirstStage(), Why: "it is temporary",
			Observe: r.Observe, Temporary: true, Fingerprint: key})
	}
	return slots, fresh
}
