// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

// Automatic is the owner of the temporary rules that the daemon adds itself.
const Automatic = "auto"

// Temporary is a rule that is not part of the policy. It comes before all rules of the policy. The kernel ends it at a given time.
type Temporary struct {
	Name  string `json:"name"`  // unique among the temporary rules and the rules of the policy
	Owner string `json:"owner"` // who added the rule, such as "auto"; each owner changes only its own rules
	Rule  string `json:"rule"`  // one line, in the form of the policy's rules
	// Value is the parsed form of Rule, whose name may differ from Name. It is nil if only the text is known.
	Value *policy.Rule `json:"-"`
	Began time.Time    `json:"began"`
	Until time.Time    `json:"until"`
	// Ends is the time Until on CLOCK_MONOTONIC, which does not change when the machine's clock is set. It is zero when only Until is known. A
	// manifest can store it, because neither survives a reboot. Ends is not part of the JSON for other programs: see Temporaries.
	Ends time.Duration `json:"-"`
	Why  string        `json:"why,omitempty"` // why the rule was added
}

// Temporaries are the temporary rules of a manifest. Their JSON has the end of each rule on both clocks.
type Temporaries []Temporary

// kept is the JSON form of a temporary rule in a manifest, which includes Ends.
type kept struct {
	Temporary
	Ends time.Duration `json:"ends,omitempty"`
}

// MarshalJSON encodes the rules, including Ends.
func (l Temporaries) MarshalJSON() ([]byte, error) {
	list := []kept{}
	for _, t := range l {
		list = append(list, kept{t, t.Ends})
	}
	return json.Marshal(list)
}

// UnmarshalJSON decodes the form that MarshalJSON encodes.
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

// Set sets the rule to r.
func (t *Temporary) Set(r *policy.Rule) { t.Rule, t.Value = r.Line(), r }

// Equal reports whether both are the same rule with the same times.
func (t Temporary) Equal(other Temporary) bool {
	return t.Name == other.Name && t.Owner == other.Owner && t.Rule == other.Rule && t.Why == other.Why && t.Began.Equal(other.Began) && t.Until.Equal(other.Until)
}

// clockStep is the largest difference between Until and Ends without a setting of the clock. A larger difference means that the clock was set.
const clockStep = 3 * time.Second

// By returns the rule with its times corrected to the clock reading now. The clock may have been set since the rule was added.
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

// Last sets the end of the rule to now plus d, on both clocks. now must include a reading of the monotonic clock, as time.Now returns it.
func (t *Temporary) Last(now time.Time, d time.Duration) {
	end := now.Add(d)
	t.Until, t.Ends = end.UTC(), image.Monotonic()+time.Until(end)
}

// Timed returns the rules with the end of each rule set on both clocks.
func Timed(list []Temporary, now time.Time) (timed []Temporary) {
	for _, t := range list {
		if t.Ends == 0 {
			t.Ends = image.Monotonic() + t.Until.Sub(now)
		}
		timed = append(timed, t.By(now))
	}
	return timed
}

// InForce returns the temporary rules that have not ended. now must be the present time. The times of the rules are corrected to the present clock.
func InForce(list []Temporary, now time.Time) (left []Temporary) {
	for _, t := range list {
		if t = t.By(now); now.Before(t.Until) {
			left = append(left, t)
		}
	}
	return left
}

// GoOnWith copies the temporary rules from the manifest before into m, the manifest of the next policy. If both have the same target in netfilter,
// the ruleset of the temporary rules also stays, including rules that have ended. Otherwise the caller must load the temporary rules into the kernel
// again.
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

// TemporaryOf returns the temporary rule at an index of the manifest's rules. It returns nil when the rule there is part of the policy.
func (m *Manifest) TemporaryOf(rule int) *Temporary {
	i := rule - (len(m.Rules) - len(m.Temporary))
	if i < 0 || !m.Rules[rule].Temporary {
		return nil
	}
	t := m.Temporary[i].By(time.Now())
	return &t
}

// temporaryFingerprint is the function fingerprint for a temporary rule. No rule of a policy has the same fingerprint.
func temporaryFingerprint(t Temporary) uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, "temporary", t.Owner, t.Name)
	return h.Sum64()
}

// SetTemporary stores temporary rules in the manifest. They are the first rules of program, in the same order. In the manifest they are the last
// rules, so that the policy's rules keep their indexes. With XDP each temporary rule has a counter slot. A rule that was in a manifest of before keeps
// its slot. Another rule gets a slot that no rule of these manifests has. `fresh` are the slots that must start at zero.
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
