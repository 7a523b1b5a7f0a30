package control_test

import (
	"slices"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/sources/feed"
)

// temporaryFaults is an instance in netfilter whose temporary rules are left half there.
type temporaryFaults struct {
	*lists
	operate.Host
}

const faultRule = "{name: t, proto: udp, port: 1000, then: drop}"

func (f temporaryFaults) add() error {
	_, err := f.AddTemporary(f.lists.Context(), operate.TemporaryOrder{Rule: faultRule, For: "1h"})
	return err
}

// agree has the next command mend what is left, and compares what is listed with what comes in.
func (f temporaryFaults) agree(when string) (listed bool) {
	f.lists.Helper()
	if _, err := f.lists.Settle(f.lists.Context()); err != nil {
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

// inert leaves the ruleset of temporary rules as a command that was killed does: loaded, with the time over in which it was to confirm.
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

// TestTemporaryFaults leaves temporary rules of netfilter half added and half removed, as commands do that are killed or whose tool fails: the
// next command mends it, and a rule is in force exactly when it is listed.
func TestTemporaryFaults(t *testing.T) {
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
