// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/test/testutil"
)

// place is the hook at which a policy drops packets. The hook limits the number of VLAN tags that a dropped packet can have.
type place struct {
	target  string
	deepest int // tags in front of IP
}

var (
	// A chain of the family inet recognizes IP after at most one tag. A table of the family netdev drops frames with more tags.
	inNftables = place{"nftables", 1}
	inXDP      = place{"xdp", 2}
)

// mostTags is the largest number of VLAN tags that a probe has.
const mostTags = 4

// taggedPolicy returns a policy that drops packets to two ports: the given port, and the port that neither policy passes. Its only checks are those
// that the rule needs, including the check of tags.
func taggedPolicy(port int) string {
	return fmt.Sprintf("\ndefault: pass\nchecks: off\nrules: [{name: ports, proto: udp, port: [%d, %d], then: drop}]\n", port, neither)
}

// tagged has the hooks at which the old and the new policy of a trial drop packets.
type tagged struct{ old, new place }

func (g tagged) layout() layout {
	name := fmt.Sprintf("tags %s to %s", g.old.target, g.new.target)
	return layout{name, []string{"--target", g.old.target}, []string{"--target", g.new.target}, false, &g}
}

// behindTags returns probes with VLAN tags to a port that both policies pass.
func behindTags() (list []probe) {
	for tags := 1; tags <= mostTags; tags++ {
		list = append(list, probe{false, both, tags}, probe{true, both, tags})
	}
	return list
}

// lets reports whether exactly those tagged probes passed that the deciding policy allows.
func (h *trialHost) lets(passed map[probe]bool, who string) bool {
	if h.tagged == nil {
		return true
	}
	deepest := map[string]int{
		old: h.tagged.old.deepest, next: h.tagged.new.deepest, open: mostTags,
		twin: min(h.tagged.old.deepest, h.tagged.new.deepest), unfiltered: max(h.tagged.old.deepest, h.tagged.new.deepest),
	}[who]
	return !slices.ContainsFunc(behindTags(), func(p probe) bool { return passed[p] != (p.tags <= deepest) })
}

// ruleset returns the whole nftables ruleset, without generation numbers.
func (h *trialHost) ruleset() (text string) {
	err := h.host.do(func() error {
		out, err := exec.Command("nft", "-s", "list", "ruleset").CombinedOutput()
		text = string(out)
		return err
	})
	if err != nil {
		h.wrong("nft list ruleset: %v: %s", err, text)
	}
	return regexp.MustCompile(`\bfloodwall[0-9a-f]*-\d+`).ReplaceAllString(text, "floodwall")
}

// wantRuleset checks that the nftables ruleset equals the expected one.
func (h *trialHost) wantRuleset(when, want string) {
	if got := h.ruleset(); got != want {
		h.wrong("%s nftables differs (-want +got):\n%s", when, cmp.Diff(want, got))
	}
}

// TestTaggedTrials puts policies on trial that make, change and remove the table for stacked VLAN tags. However the trial ends, the policy in force
// must decide whether frames with up to four tags reach a socket. nftables must have exactly the rules that this policy alone would have.
func TestTaggedTrials(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	dir := scripts(t, killer)
	layouts := []layout{tagged{inXDP, inNftables}.layout(), tagged{inNftables, inNftables}.layout()}
	if testutil.Long() {
		layouts = append(layouts, tagged{inNftables, inXDP}.layout())
	}
	onHosts(t, layouts, 2, func(h *trialHost) {
		rulesets := map[string]string{old: h.ruleset()}
		h.apply(next)
		rulesets[next] = h.ruleset()
		for _, who := range []string{old, next} {
			place := map[string]place{old: h.tagged.old, next: h.tagged.new}[who]
			if has := strings.Contains(rulesets[who], "table netdev"); has != (place == inNftables) {
				h.wrong("on %s there is a table of family netdev: %v:\n%s", place.target, has, rulesets[who])
			}
		}
		h.apply(old)
		if h.number == 0 {
			h.endTagged(rulesets)
		} else {
			h.killTagged(dir, rulesets)
		}
	})
}

// endTagged ends trials in every way except by `unload`, which killTagged tests.
func (h *trialHost) endTagged(rulesets map[string]string) {
	const long = "10m"
	for _, end := range []struct {
		command, then string
	}{{"confirm", next}, {"rollback", old}} {
		h.enter("%s", end.command)
		h.apply(next, "--confirm", long)
		h.straight("during the trial", next)
		h.must(end.command)
		h.straight("after the trial", end.then)
		h.wantRuleset("after the trial", rulesets[end.then])
		h.apply(old)
	}

	h.enter("time-out")
	h.apply(next, "--confirm", shortTrial.String())
	h.settles(time.Now().Add(shortTrial))
	h.must("rollback")
	h.straight("after the trial and `rollback`", old)
	h.wantRuleset("after the trial and `rollback`", rulesets[old])
}

// settles waits for the end of a trial, and checks that the old policy then decides.
func (h *trialHost) settles(deadline time.Time) {
	if who := h.settled(deadline, func(who string) bool { return who == old }); who != old {
		h.wrong("after the deadline %s decides", who)
	}
}

// killTagged kills commands after their steps in netfilter. Then the old policy or the new one must decide, or both for a moment. After `unload`,
// possibly no policy decides. The next command must restore a consistent state.
func (h *trialHost) killTagged(dir string, rulesets map[string]string) {
	for _, command := range []string{"apply", "confirm", "rollback", "unload"} {
		step, done := 1, false
		if !testutil.Long() {
			step += h.random.IntN(20) // `apply` takes some 40, the others fewer
		}
		for ; !done; step++ {
			h.enter("%s killed after step %d", command, step)
			args, may := []string{command}, []string{old, next, twin}
			if command == "unload" {
				may = append(may, open)
			}
			if command == "apply" {
				args = h.applying(next, "--confirm", shortTrial.String())
			} else {
				h.apply(next, "--confirm", "10m")
			}
			var err error
			if done, err = h.killAt(dir, step, args...); err != nil {
				h.wrong("%v", err)
				done = true
			}
			switch who := h.decides(); {
			case command == "apply":
				h.settles(time.Now().Add(shortTrial))
			case !slices.Contains(may, who):
				h.wrong("%s decides", who)
			case command == "unload":
				// By the last steps, unload has removed everything. These steps only search for leftovers of other programs.
				if out, err := h.run("unload"); err != nil && !done && (who != open || !strings.Contains(out, "nothing is loaded")) {
					h.wrong("another unload: %v\n%s", err, out)
				}
				h.want("after `unload`", open)
				h.wantRuleset("after `unload`", "")
			}
			h.apply(old)
			h.straight("after the next apply", old)
			h.wantRuleset("after the next apply", rulesets[old])
			done = done || !testutil.Long()
		}
	}
}
