// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/test/testutil"
)

// temporaryFaults is an instance in netfilter with a change of temporary rules that was done only in part.
type temporaryFaults struct {
	*lists
	operate.Host
}

// onTemporary runs a test for each kind of netfilter, on an instance with a policy and the temporary rule t.
func onTemporary(t *testing.T, test func(f temporaryFaults, kind netfilter.Kind)) {
	onLists(t, func(l *lists, w way) {
		kind, ok := map[string]netfilter.Kind{"nftables": netfilter.KindNft, "iptables": netfilter.KindIptables}[w.name]
		if !ok {
			return
		}
		l.body.Store("9.9.9.77\n")
		if _, err := l.try(l.policy(w, l.url), control.ApplyOptions{Target: w.target, Fetch: &feed.Fetcher{}}); err != nil {
			l.Fatal(err)
		}
		f := temporaryFaults{l, operate.Host{Instance: l.Instance, Warn: func(error) {}}}
		if err := f.add(); err != nil {
			l.Fatal(err)
		}
		test(f, kind)
	})
}

const faultRule = "{name: t, proto: udp, port: 1000, then: drop}"

func (f temporaryFaults) add() error {
	_, err := f.AddTemporary(f.lists.Context(), operate.TemporaryOrder{Rule: faultRule, For: "1h"})
	return err
}

// agree runs the next command, which must complete the change. It checks that the rule is listed exactly if it is in force. It returns true if the
// rule is listed.
func (f temporaryFaults) agree(when string) (listed bool) {
	f.lists.Helper()
	if _, err := f.lists.FinishTrial(f.lists.Context()); err != nil {
		f.lists.Errorf("%s: %v", when, err)
	}
	list, err := f.Temporary(f.lists.Context())
	if err != nil {
		f.lists.Fatal(err)
	}
	listed = slices.ContainsFunc(list, func(r control.RuleStatus) bool { return r.Name == "t" })
	if f.gets("9.9.9.1", 1000, !listed) == listed {
		f.lists.Errorf("%s: listed: %t, and a packet gets through: %t", when, listed, listed)
	}
	return listed
}

// inert puts the ruleset of temporary rules into the state that a killed command leaves: loaded, but not confirmed in time.
func (f temporaryFaults) inert(kind netfilter.Kind) {
	f.lists.Helper()
	ctx := f.lists.Context()
	m, err := f.lists.Manifest(ctx)
	if err != nil {
		f.lists.Fatal(err)
	}
	tool, err := netfilter.FindTool(ctx, kind)
	if err != nil {
		f.lists.Fatal(err)
	}
	name := m.TemporaryRuleset.Name
	if err := tool.Remove(ctx, name); err != nil {
		f.lists.Fatal(err)
	}
	if err := tool.Load(ctx, m.TemporaryRuleset, "", netfilter.Loading{Trial: 2 * time.Second}); err != nil {
		f.lists.Fatal(err)
	}
	for {
		_, state, err := tool.Trial(ctx, name)
		if err != nil {
			f.lists.Fatal(err)
		}
		if state == netfilter.Inert {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestTemporaryFaults leaves changes of temporary rules in netfilter incomplete, as if a command was killed or its tool failed. The next command must
// complete the change, and a rule must be in force exactly if it is listed.
func TestTemporaryFaults(t *testing.T) {
	onTemporary(t, func(f temporaryFaults, kind netfilter.Kind) {
		l := f.lists
		f.inert(kind)
		if !f.agree("a ruleset that was never confirmed") {
			l.Error("a rule that was added is lost")
		}
		fail, calls := l.sabotage()
		for n := 1; ; n++ {
			fail(n)
			removed := f.RemoveTemporary(l.Context(), "t")
			ended := calls() < n
			fail(0)
			if listed := f.agree("a removal that fails"); listed && removed == nil {
				l.Error("a rule that was removed is listed")
			} else if !listed && !ended {
				if err := f.add(); err != nil {
					l.Fatal(err)
				}
			}
			if ended {
				break
			}
		}
	})
}

// returned puts the ruleset of temporary rules into the state after a command was killed while it replaced the ruleset. The new ruleset is inert
// again, and the old one decides again. This state can persist if a later command fails before it reaches the ruleset.
func (f temporaryFaults) returned(tool netfilter.Tool) {
	f.lists.Helper()
	ctx := f.lists.Context()
	m, err := f.lists.Manifest(ctx)
	if err != nil {
		f.lists.Fatal(err)
	}
	now := m.TemporaryRuleset
	state := func(name string) netfilter.State {
		_, state, err := tool.Trial(ctx, name)
		if err != nil {
			f.lists.Fatal(err)
		}
		return state
	}
	other := now.Name[:len(now.Name)-1] + map[string]string{"1": "2", "2": "1"}[now.Name[len(now.Name)-1:]]
	old, next := now, new(netfilter.Ruleset)
	text, err := json.Marshal(now)
	if err == nil {
		renamed := strings.NewReplacer(now.Name, other, strings.ToLower(now.Name), strings.ToLower(other)).Replace(string(text))
		err = json.Unmarshal([]byte(renamed), next)
	}
	if err != nil {
		f.lists.Fatal(err)
	}
	if s := state(other); s == netfilter.Settled || s == netfilter.Returned { // a command has failed after the manifest named the next ruleset
		old, next = next, now
	}
	if state(old.Name) == netfilter.Settled {
		if state(next.Name) != netfilter.Absent {
			err = tool.Remove(ctx, next.Name)
		}
		if err == nil {
			err = tool.Load(ctx, next, old.Name, netfilter.Loading{Trial: netfilter.MinTrial})
		}
		if err != nil {
			f.lists.Fatal(err)
		}
	}
	for since := time.Now(); state(old.Name) != netfilter.Returned || state(next.Name) == netfilter.OnTrial; time.Sleep(100 * time.Millisecond) {
		if time.Since(since) > time.Minute {
			f.lists.Fatalf("%s is %v, %s is %v, the manifest names %s", old.Name, state(old.Name), next.Name, state(next.Name), now.Name)
		}
	}
}

// TestTemporaryReturned first kills a command in the middle of a change of temporary rules in netfilter. In the next command it makes one call of a
// tool fail; in the long form it tests each call. The rules in force must stay in force at every moment.
func TestTemporaryReturned(t *testing.T) {
	onTemporary(t, func(f temporaryFaults, kind netfilter.Kind) {
		l := f.lists
		tool, err := netfilter.FindTool(l.Context(), kind)
		if err != nil {
			l.Fatal(err)
		}
		fail, calls := l.sabotage()
		step := 4
		if testutil.Long() {
			step = 1
		}
		for n, ended := min(2, step), false; !ended; n += step {
			fail(0)
			f.returned(tool)
			fail(n)
			_, err := l.FinishTrial(l.Context())
			ended = calls() < n
			fail(0)
			if l.gets("9.9.9.1", 1000, false) {
				l.Fatalf("after a mend whose call %d fails (%v) the rule drops nothing", n, err)
			}
		}
		if !f.agree("after all") {
			l.Error("a rule that was added is lost")
		}
	})
}
