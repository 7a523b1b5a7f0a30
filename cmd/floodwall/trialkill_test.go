// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/test/testutil"
)

// onHosts calls do on several hosts of each layout at the same time. The old policy is applied on each host. At the end it unloads, and nothing may
// be left. The first host of a layout receives a steady stream of packets about which the two policies agree, so these packets must get the same
// verdicts all the time.
func onHosts(t *testing.T, layouts []layout, hosts int, do func(h *trialHost)) {
	t.Helper()
	for _, tool := range stepTools {
		testutil.RequireTool(t, tool)
	}
	t.Setenv("SSH_CONNECTION", "") // no session to guard
	seed := testutil.Seed(t)
	before := testutil.Now()
	t.Cleanup(func() {
		if found := testutil.Leftovers(before); found != nil {
			t.Errorf("left behind:\n%s", strings.Join(found, "\n"))
		}
	})
	var all []*trialHost
	for _, in := range layouts {
		pace := &pace{takes: map[string]time.Duration{}}
		for i := range hosts {
			all = append(all, newTrialHost(t, in, pace, i, len(all), seed))
		}
	}
	var wg sync.WaitGroup
	for i, h := range all {
		wg.Go(func() {
			h.prepare()
			if i%hosts == 0 {
				h.underStream(do)
			} else {
				do(h)
			}
			h.clean()
		})
	}
	wg.Wait()
	for _, h := range all {
		for _, m := range h.messages {
			t.Error(m)
		}
	}
}

// prepare applies the old policy twice, so that a rollback has a previous policy.
func (h *trialHost) prepare() {
	h.enter("the first applies")
	for range 2 {
		h.apply(old)
	}
	h.want("applied", old)
}

func (h *trialHost) underStream(do func(h *trialHost)) {
	probes := h.probes(func(kind int) bool { return kind == both || kind == neither })
	stop, done := make(chan struct{}), make(chan struct{})
	var sent map[probe]int
	var err error
	go func() {
		defer close(done)
		sent, err = h.steady(probes, stop)
	}()
	do(h)
	close(stop)
	<-done
	if err != nil {
		h.wrong("stream: %v", err)
	}
	h.enter("the end of the stream")
	for _, m := range h.judge(sent, func(p probe) bool { return p.port/1000*1000 == both }) {
		h.wrong("stream: %s", m)
	}
	for _, p := range probes {
		if sent[p] < 20 {
			h.wrong("only %d packets of %v were sent: the stream shows nothing", sent[p], p)
		}
	}
}

// long returns the number of kills n, or ten times as many in the long form.
func long(n int) int { return testutil.Scaled(n, 10*n) }

// settled waits for the end of a trial, and returns which policy decides after it. On a slow machine the trial ends after the deadline, because the
// time of a trial starts again after each slow step.
func (h *trialHost) settled(deadline time.Time, expected func(who string) bool) (who string) {
	time.Sleep(time.Until(deadline.Add(grace)))
	testutil.Eventually(time.Minute, func() bool {
		who = h.decides()
		return expected(who) && !h.onTrial()
	})
	return who
}

// onTrial reports whether the status says that a policy is on trial.
func (h *trialHost) onTrial() bool {
	out, _ := h.run("status") // status fails if the next command must repair something
	return strings.Contains(out, "on trial: ")
}

// shortTrial is the duration of the trials that are killed. It is the shortest possible duration.
const shortTrial = operate.ShortestTrial

// tally counts the results on all hosts.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
}

// TestTrialKilled kills `apply --confirm` at random points. After the deadline the old policy must always decide, and the next command must work.
func TestTrialKilled(t *testing.T) {
	for _, tt := range []struct {
		layout
		hosts, rounds int
	}{
		{xdpAlone, testutil.Scaled(1, 15), 1},
		{companion, testutil.Scaled(2, 15), 1},
		{nftables, testutil.Scaled(1, 15), 1},
		{iptables, testutil.Scaled(1, 6), 1},
		{toNetfilter, testutil.Scaled(1, 3), 1},
		{toXDP, testutil.Scaled(1, 3), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			var ends tally
			onHosts(t, []layout{tt.layout}, tt.hosts, func(h *trialHost) {
				for range long(tt.rounds) {
					ends.add(h.killApply())
				}
			})
			t.Logf("%d applies; right after the kill decides: %v", tt.hosts*long(tt.rounds), ends.counts)
		})
	}
}

// killApply kills one apply. It returns a text with two results: whether the kill came before the end of the apply, and which policy decided right
// after it.
func (h *trialHost) killApply() string {
	after := h.pace.point(h.random, "apply")
	h.enter("apply --confirm killed after %v", after.Round(time.Millisecond))
	done, err := h.kill(after, h.applying(next, "--confirm", shortTrial.String())...)
	if err != nil {
		h.wrong("%v", err)
	}
	deadline := time.Now().Add(shortTrial)
	then := h.decides()
	if who := h.settled(deadline, func(who string) bool { return who == old }); who != old {
		h.wrong("after the deadline %s decides, not %s", who, old)
	}
	which := h.random.IntN(4)
	h.enter("%s, next is command %d", h.doing, which)
	h.goOn(which)
	if done {
		return "over already, " + short(then)
	}
	return "killed, " + short(then)
}

// goOn runs one of the commands that a user may run after a trial has ended.
func (h *trialHost) goOn(which int) {
	switch which {
	case 0:
		if out := h.must("status"); !strings.Contains(out, "old.yaml, ") {
			h.wrong("status does not say that the old policy runs:\n%s", out)
		}
	case 1:
		if out, err := h.run("confirm"); err == nil {
			h.wrong("a trial that ended is confirmed:\n%s", out)
		}
	case 2:
		h.must("rollback")
	default:
		h.apply(old)
	}
	h.straight("after that", old)
}

// TestTrialEnds checks with packets when the old policy returns after a trial of five seconds, while no process of Floodwall runs. The policy must
// not return before the trial is over, and must then stay. In netfilter, both policies decide in the last second.
func TestTrialEnds(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	var returned tally
	onHosts(t, []layout{xdpAlone, generic, companion, nftables, iptables, toNetfilter, toXDP}, 1, func(h *trialHost) {
		h.enter("trial")
		start := time.Now()
		h.must(h.applying(next, "--confirm", "5s")...)
		applied := time.Now()
		sure := start.Add(5 * time.Second)
		if h.stateful {
			sure = sure.Add(-time.Second)
		}
		back := h.returns(sure, applied)
		returned.add(fmt.Sprintf("%s: %v after the apply ended, which took %v", h.name,
			back.Sub(applied).Round(time.Millisecond), applied.Sub(start).Round(time.Millisecond)))
		if took := back.Sub(applied); testutil.Long() && took > 5500*time.Millisecond {
			h.wrong("the old policy is back only %v after the apply", took)
		}
		for range 20 {
			h.want("once it is back", old)
			time.Sleep(50 * time.Millisecond)
		}
	})
	for what := range returned.counts {
		t.Logf("the old policy is back: %s", what)
	}
}

// returns waits until the old policy decides again after a trial, and returns the time. The new policy must decide until sure.
func (h *trialHost) returns(sure, applied time.Time) time.Time {
	for {
		asked := time.Now()
		who := h.decides()
		answered := time.Now()
		switch {
		case answered.Before(sure) && who != next:
			h.wrong("%v before the trial can end %s decides", sure.Sub(answered), who)
		case who == old:
			return asked
		case asked.After(applied.Add(time.Minute)):
			h.wrong("a minute after the apply %s decides", who)
			return asked
		case strings.HasPrefix(who, mixture) && !h.stateful: // tested at the moment of the change; the next answer is definite
			if again := h.decides(); again != old {
				h.wrong("%v after the apply %s decides, and then %s", asked.Sub(applied), who, again)
			}
		case who != next && who != twin && !h.stateful: // XDP and netfilter need not return together
			h.wrong("%v after the apply %s decides", asked.Sub(applied), who)
		}
		time.Sleep(time.Until(asked.Add(50 * time.Millisecond)))
	}
}

// TestKilledEnding kills `confirm` and `rollback` at random points. One of the two policies must decide after each kill. After the next command, the
// host must be in a consistent state.
func TestKilledEnding(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	var ends tally
	kills := 0
	onHosts(t, []layout{xdpAlone, companion, nftables, iptables}, testutil.Scaled(1, 5), func(h *trialHost) {
		for round := range testutil.Scaled(1, 30) {
			ends.add(h.killEnding([]string{"confirm", "rollback", "rollback without a trial"}[(h.turn+round)%3]))
		}
	})
	for what, n := range ends.counts {
		kills += n
		t.Logf("%d times: %s", n, what)
	}
	t.Logf("%d kills", kills)
}

// endingTrial is the length of a trial that leaves time for the commands of killEnding.
const endingTrial = 5 * time.Second

// killEnding kills one command that ends a trial. It returns a description of the result.
func (h *trialHost) killEnding(command string) string {
	h.enter("the applies before %s", command)
	h.apply(old)
	lasts := h.pace.leaves(endingTrial, "apply")
	trial := []string{"--confirm", lasts.String()}
	if command == "rollback without a trial" {
		trial = nil
	}
	h.apply(next, trial...)
	deadline := time.Now().Add(lasts)
	h.want("applied", next)
	after := h.pace.point(h.random, strings.Fields(command)[0])
	h.enter("%s killed after %v", command, after.Round(time.Millisecond))
	done, err := h.kill(after, strings.Fields(command)[0])
	if err != nil {
		h.wrong("%v", err)
	}
	then := h.decides()
	who := then
	if trial != nil {
		fine := func(who string) bool { return who == old || who == next || command == "confirm" && h.between(who) }
		if who = h.settled(deadline, fine); !fine(who) {
			h.wrong("after the deadline %s decides, and right after the kill %s", who, then)
		}
	}
	if want := map[string]string{"confirm": next, "rollback": old}[strings.Fields(command)[0]]; done && who != want {
		h.wrong("it is done, and %s decides, not %s", who, want)
	}
	h.putStraight(who)
	return fmt.Sprintf("%s, right after it %s, then %s", command, short(then), short(who))
}

// putStraight runs one of the commands that a user may run next. After that command, one policy must decide.
func (h *trialHost) putStraight(now string) {
	which := h.random.IntN(3)
	h.enter("%s, next is command %d", h.doing, which)
	switch which {
	case 0:
		h.must("status")
		if now == old || now == next {
			h.want("after status", now)
		}
	case 1:
		if out, err := h.run("rollback"); err != nil && !strings.Contains(out, "no previous policy") {
			h.wrong("rollback: %v\n%s", err, out)
		}
		if who := h.decides(); who != old && who != next {
			h.wrong("after another rollback %s decides", who)
		}
	}
	h.apply(next)
	h.straight("after the next apply", next)
}

// short removes the details from an answer of decides.
func short(who string) string {
	who, _, _ = strings.Cut(who, ":")
	return who
}
