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

// place is where a policy drops, which decides how many VLAN tags it lets by.
type place struct {
	target  string
	deepest int // tags in front of IP
}

var (
	// A chain of family inet sees IP behind one tag, and a table of family netdev drops what is deeper.
	inNftables = place{"nftables", 1}
	inXDP      = place{"xdp", 2}
)

// mostTags is the largest number of tags that a probe has.
const mostTags = 4

// taggedPolicy drops what comes to a port and to that which neither policy passes. It has no checks but those that its rule needs,
// among them that of tags.
func taggedPolicy(port int) string {
	return fmt.Sprintf("\ndefault: pass\nchecks: off\nrules: [{name: ports, proto: udp, port: [%d, %d], then: drop}]\n", port, neither)
}

// tagged says where the policies of a trial drop.
type tagged struct{ old, new place }

func (g tagged) layout() layout {
	name := fmt.Sprintf("tags %s to %s", g.old.target, g.new.target)
	return layout{name, []string{"--target", g.old.target}, []string{"--target", g.new.target}, false, &g}
}

// behindTags are probes to a port that both policies pass.
func behindTags() (list []probe) {
	for tags := 1; tags <= mostTags; tags++ {
		list = append(list, probe{false, both, tags}, probe{true, both, tags})
	}
	return list
}

// lets reports whether as many tags were let by as who decides lets by.
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

// ruleset is all that nftables has, without the numbers of generations.
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

// wantRuleset compares what nftables has with what it is to have.
func (h *trialHost) wantRuleset(when, want string) {
	if got := h.ruleset(); got != want {
		h.wrong("%s nftables differs (-want +got):\n%s", when, cmp.Diff(want, got))
	}
}

// TestTaggedTrials puts policies on trial that make, change and remove the table for stacked VLAN tags. However the trial ends, frames
// with up to four tags reach a socket as the policy in force says, and nftables has exactly what the policy alone would have.
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

// endTagged ends trials in each way but by `unload`, which killTagged does.
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

// settles waits for the end of a trial, after which the old policy decides.
func (h *trialHost) settles(deadline time.Time) {
	if who := h.settled(deadline, func(who string) bool { return who == old }); who != old {
		h.wrong("after the deadline %s decides", who)
	}
}

// killTagged kills commands after steps in netfilter. Then the old policy decides or the new one, or for a moment both, and after
// `unload` perhaps none. The next command puts everything in order.
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
				// The last steps only look for what others left: all is gone then.
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
