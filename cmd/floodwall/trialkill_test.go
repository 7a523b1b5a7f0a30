package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/testutil"
)

// onHosts calls do on so many hosts of each layout at the same time, with the old policy applied. At the end it unloads
// them: nothing may be left. The first host of a layout is under a steady stream of packets that the two policies treat
// alike, so they must be treated like that all the time.
func onHosts(t *testing.T, layouts []layout, hosts int, do func(h *trialHost)) {
	t.Helper()
	t.Setenv("SSH_CONNECTION", "")
	seed := seed(t)
	before := testutil.Now()
	t.Cleanup(func() {
		start := time.Now()
		defer func() { t.Logf("looking for leftovers took %v", time.Since(start).Round(time.Millisecond)) }()
		if found := testutil.Leftovers(before); found != nil {
			t.Errorf("left behind:\n%s", strings.Join(found, "\n"))
		}
	})
	var all []*trialHost
	for _, in := range layouts {
		for i := range hosts {
			all = append(all, newTrialHost(t, in, i, seed))
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

// prepare applies the old policy, twice, so that there is one to roll back to.
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

// long multiplies a number of kills in the long run.
func long(n int) int {
	if os.Getenv("FLOODWALL_LONG") != "" {
		return 10 * n
	}
	return n
}

// shortTrial is the time of the trials that are killed, the shortest there is.
const shortTrial = shortestTrial

// tally counts how things ended, over all hosts.
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

// TestTrialKilled kills `apply --confirm` at random points: by the deadline the old policy decides, always, and the
// next command works.
func TestTrialKilled(t *testing.T) {
	for _, tt := range []struct {
		layout
		hosts, rounds int
	}{
		{xdpAlone, 15, 6},
		{companion, 15, 6},
		{nftables, 15, 6},
		{iptables, 6, 5},
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
			t.Logf("%d applies killed; right after it decide: %v", tt.hosts*long(tt.rounds), ends.counts)
		})
	}
}

// killApply is one round. It returns who decided right after the kill.
func (h *trialHost) killApply() string {
	after := point(h.random, h.takes)
	h.enter("apply killed after %v of %v", after.Round(time.Millisecond), h.takes.Round(time.Millisecond))
	if _, err := h.kill(after, h.applying(next, "--confirm", shortTrial.String())...); err != nil {
		h.wrong("%v", err)
	}
	deadline := time.Now().Add(shortTrial)
	then := h.decides()
	time.Sleep(time.Until(deadline.Add(grace)))
	h.want("at the deadline", old)
	h.goOn(h.random.IntN(4))
	if len(then) > len(open) {
		return "a mixture"
	}
	return then
}

// goOn uses one of the commands that may be next after a trial has ended.
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
	h.want(fmt.Sprintf("after command %d", which), old)
}

// TestTrialEnds lets a trial of five seconds end with every process dead, and sees by packets when the old policy
// returns. In netfilter both decide in the last second.
func TestTrialEnds(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	var returned tally
	onHosts(t, []layout{xdpAlone, generic, companion, nftables, iptables}, 1, func(h *trialHost) {
		h.enter("trial")
		start := time.Now()
		h.must(h.applying(next, "--confirm", "5s")...)
		applied := time.Now()
		sure := start.Add(5 * time.Second)
		if h.stateful {
			sure = sure.Add(-time.Second)
		}
		var back time.Time
		for time.Since(applied) < 6500*time.Millisecond {
			asked := time.Now()
			who := h.decides()
			answered := time.Now()
			switch {
			case who == old && back.IsZero():
				back = asked
			case answered.Before(sure) && who != next:
				h.wrong("%v after the start %s decides", answered.Sub(start), who)
			case asked.After(applied.Add(5500*time.Millisecond)) && who != old:
				h.wrong("%v after the apply %s decides", asked.Sub(applied), who)
			case !slices.Contains([]string{old, next, twin}, who) && !h.stateful:
				h.wrong("%v after the apply %s decides", asked.Sub(applied), who)
			}
			time.Sleep(time.Until(asked.Add(50 * time.Millisecond)))
		}
		returned.add(fmt.Sprintf("%s: %v after the apply ended, which took %v", h.name,
			back.Sub(applied).Round(time.Millisecond), applied.Sub(start).Round(time.Millisecond)))
	})
	for what := range returned.counts {
		t.Logf("the old policy is back: %s", what)
	}
}
