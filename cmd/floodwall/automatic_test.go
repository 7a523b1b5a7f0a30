// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/test/testutil"
)

// temporaryRules lists the temporary rules with the command.
func temporaryRules(t *testing.T) (list []control.RuleStatus) {
	t.Helper()
	if err := json.Unmarshal([]byte(mustFloodwall(t, "temporary", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestAutomatic runs the daemon with the capabilities of its unit. Against a flood, the daemon must add a rule that first only observes and then
// drops. The rule must stay in force without the daemon and across an apply. It must be removed when the flood is over. The packets of clients must
// arrive all the time.
func TestAutomatic(t *testing.T) {
	if !inside(t) {
		return
	}
	state := t.TempDir()
	file := automatic(t, state, "{collateral: 0.5%, max: 1}")
	mustFloodwall(t, "apply", file, "--state", state)
	got := received(t)
	sendMeanwhile(t, "fw1", 75*time.Millisecond, legitimate...)
	h := startUnitDaemon(t, "--state", state, "--json")
	first := h
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the first daemon said:\n%s", first.said)
		}
	})
	stop := sendMeanwhile(t, "fw1", 10*time.Millisecond, ntpFlood()...)
	rule := func() control.RuleStatus {
		if list := temporaryRules(t); len(list) == 1 {
			return list[0]
		}
		return control.RuleStatus{}
	}
	waitFor(t, "a rule that drops", func() bool { r := rule(); return r.Name == "auto-1" && !r.Observe && r.Packets > 0 })
	if r := rule(); r.Temporary.Owner != "auto" || !strings.Contains(r.Temporary.Rule, "udp/123") || time.Until(r.Temporary.Until) > 10*time.Minute {
		t.Errorf("the rule: %+v", r.Temporary)
	}
	h.kill()
	before, clients := rule().Packets, got.Load()
	waitFor(t, "drops without a daemon", func() bool { return rule().Packets > before+50 })
	waitFor(t, "packets of the clients", func() bool { return got.Load() > clients+20 })
	mustFloodwall(t, "apply", file, "--state", state)
	if r := rule(); r.Name != "auto-1" || r.Observe {
		t.Errorf("after an apply: %+v", r)
	}
	said := h.said.String()
	h = startUnitDaemon(t, "--state", state)
	waitFor(t, "the attack to go on", func() bool { return h.attacksOf().Active == 1 })
	if r := rule(); r.Name != "auto-1" || r.Observe {
		t.Errorf("with another daemon: %+v", r)
	}
	stop()
	waitFor(t, "the end of the rule", func() bool { return len(temporaryRules(t)) == 0 })
	clients = got.Load()
	waitFor(t, "packets of the clients", func() bool { return got.Load() > clients+5 })
	var did []string
	for line := range strings.Lines(said) {
		var event api.Event
		if json.Unmarshal([]byte(line), &event) != nil {
			continue // the audit
		}
		if turn, ok := event.Data.(map[string]any); ok && turn["rule"] != nil {
			did = append(did, turn["state"].(string))
		}
	}
	if strings.Join(did, " ") != "observes drops" || !strings.Contains(said, "msg=automatic rule=auto-1 did=drops") {
		t.Errorf("steps %v; the daemon said:\n%s", did, said)
	}
}

// TestImitation simulates an attacker that sends the same packets as the clients, from other addresses, in addition to an amplification attack. A
// rule against the imitation would also drop the clients, so the daemon must drop only the amplification. When a known client starts to send such
// packets, the rule must be removed.
func TestImitation(t *testing.T) {
	if !inside(t) {
		return
	}
	state := t.TempDir()
	file := automatic(t, state, "{collateral: 0.5%, max: 3}")
	mustFloodwall(t, "apply", file, "--state", state)
	got := received(t)
	sendMeanwhile(t, "fw1", 75*time.Millisecond, legitimate...)
	h := startUnitDaemon(t, "--json")
	r, packets := testutil.Random(t), []string{}
	for i := range 300 { // sources from everywhere, so that no rule can distinguish them by address
		from := fmt.Sprintf("%d.%d.%d.%d", 1+r.IntN(220), r.IntN(256), r.IntN(256), 1+r.IntN(254))
		packets = append(packets, strings.Replace(legitimate[i%3], legitimate[i%3][4:len("udp 203.0.113.7")], from, 1),
			fmt.Sprintf("udp %s:123 > 192.0.2.1:%d len=468 payload=0xd700032a", from, 4000+i))
	}
	sendMeanwhile(t, "fw1", 250*time.Millisecond, packets...)
	drops := func() (list []control.RuleStatus) {
		for _, r := range temporaryRules(t) {
			if !r.Observe {
				list = append(list, r)
			}
		}
		return list
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon said:\n%s", h.said)
		}
	})
	waitFor(t, "a rule that drops", func() bool { list := drops(); return len(list) > 0 && list[0].Packets > 100 })
	for _, p := range legitimate {
		if got := verdict(t, p); got != "pass default" {
			t.Errorf("%s: %s, by one of %+v", p, got, drops())
		}
	}
	before := got.Load()
	waitFor(t, "packets of clients", func() bool { return got.Load() > before+100 })
	const new = "udp 203.0.113.7:123 > 192.0.2.1:4150 len=468 payload=0xd700032a" // from a client, to a port that the rule certainly matches
	if got := verdict(t, new); !strings.HasPrefix(got, "drop auto-") {
		t.Errorf("what is like the attack: %s, with %+v", got, temporaryRules(t))
	}
	sendMeanwhile(t, "fw1", 20*time.Millisecond, new)
	waitFor(t, "the end of the rule", func() bool { return verdict(t, new) == "pass default" })
	waitFor(t, "the reason for its end", func() bool {
		return strings.Contains(h.said.String(), "samples from sources that were here before the attack")
	})
}
