// SPDX-License-Identifier: Apache-2.0

package traffic_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/testutil"
)

// home is a target, and the mode of target xdp.
type home struct {
	target plan.Target
	mode   datapath.Mode
}

func (h home) String() string {
	if h.mode == datapath.Keep {
		return string(h.target)
	}
	return fmt.Sprintf("%s-%s", h.target, h.mode)
}

// homes are all targets, and target xdp at tc, where the kernel has that.
func homes() []home {
	list := []home{{target: plan.TargetXDP}, {target: plan.TargetNftables}, {target: plan.TargetIptables}}
	if features.TCX() == nil {
		list = append(list, home{plan.TargetXDP, datapath.TC})
	}
	return list
}

// options returns the options with which a policy is applied there.
func (h home) options() control.ApplyOptions {
	return control.ApplyOptions{Target: h.target, Mode: h.mode}
}

// TestReach sends an adversary's frames to a host with random policies, on each target. No socket behind the policy may receive forbidden data.
// Well-formed packets that the policy passes must arrive. FLOODWALL_LONG=1 sends a million frames for each target.
func TestReach(t *testing.T) {
	for _, home := range homes() {
		t.Run(home.String(), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			r := &run{home: home, scene: newScene(t), kinds: map[kind]int{}, seed: 13}
			r.connect(t, &generator{Rand: rand.New(rand.NewPCG(r.seed, 0))})
			policies, attempts, frames := 4, 390, 1
			if os.Getenv("FLOODWALL_LONG") != "" {
				policies, attempts, frames = 1, 2000, number(t, "FLOODWALL_FRAMES", 1_000_000)
			}
			if os.Getenv("FLOODWALL_LONG") != "" || os.Getenv("FLOODWALL_SEED") != "" {
				r.seed = testutil.Seed(t)
			}
			for i := number(t, "FLOODWALL_POLICY", 0); (i < policies || r.frames < frames) && !t.Failed(); i++ {
				r.policy(t, i, attempts)
			}
			r.report(t)
		})
	}
}

// number returns the number in an environment variable, or the parameter otherwise if the variable is not set. FLOODWALL_POLICY is the number of the
// first policy, so that a test of one policy can be repeated. FLOODWALL_FRAMES is the number of frames in the long form.
func number(t *testing.T, name string, otherwise int) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// run is a series of random policies on one target, with its counters.
type run struct {
	*scene
	home
	seed     uint64
	kinds    map[kind]int // number of frames of each kind
	frames   int
	received int                     // events at sockets
	spoken   int                     // number of these events that are data on connections
	arrived  int                     // number of attempts that had to arrive
	against  int                     // number of forbidden events
	refused  int                     // number of policies that the target refuses
	earlier  map[netip.Addr]*attempt // attempts of the previous policy, by their source
}

// policy applies a random policy and sends attempts.
func (r *run) policy(t *testing.T, number, attempts int) {
	t.Helper()
	g := &generator{Rand: rand.New(rand.NewPCG(r.seed, uint64(number))), next: uint32(number * attempts), connections: r.connections}
	for _, c := range r.connections {
		c.used = false
	}
	var text string
	var j *judge
	for j == nil {
		text = g.policy()
		j = r.apply(t, text)
	}
	g.metadata = r.metadata && !strings.Contains(text, "vlan:")
	sent := map[netip.Addr]*attempt{}
	var list []*attempt
	for i := range attempts {
		a := g.attempt(kind(i) % numKinds)
		sent[a.src] = a
		list = append(list, a)
	}
	told := fmt.Sprintf("target %s; FLOODWALL_SEED=%d FLOODWALL_POLICY=%d FLOODWALL_LONG=%s repeats it; the policy is\n%s",
		r.home, r.seed, number, os.Getenv("FLOODWALL_LONG"), text)
	r.attack(t, j, list, sent, told)
	r.earlier = sent
}

// apply applies a policy. It returns nil if the target refuses the policy, or if no packet can ever match the policy.
func (r *run) apply(t *testing.T, text string) *judge {
	t.Helper()
	c, err := control.CompileSource("policy.yaml", []byte(text))
	var j *judge
	if err == nil {
		j, err = newJudge(c, r.target)
	}
	var place *plan.StageError
	var left *control.LeftError
	if err == nil {
		_, err = r.Apply(context.Background(), c.Policy, r.options())
	}
	switch {
	case err == nil:
		return j
	case errors.As(err, &place), errors.As(err, &left), strings.Contains(err.Error(), "never match"), strings.Contains(err.Error(), "iptables"):
		r.refused++
	default:
		t.Fatalf("%v\n%s", err, text)
	}
	return nil
}

// attack sends attempts, and judges the data that sockets receive.
func (r *run) attack(t *testing.T, j *judge, list []*attempt, sent map[netip.Addr]*attempt, told string) {
	t.Helper()
	const together = 64 // frames; a veth's queue has more slots
	look := func() (found bool) {
		for _, e := range r.events(t) {
			found = true
			r.judge(t, j, sent, e, told)
		}
		return found
	}
	n := 0
	for _, a := range list {
		r.send(t, a)
		r.kinds[a.kind] += len(a.frames)
		r.frames += len(a.frames)
		if n += len(a.frames); n > together {
			n = 0
			r.settle(t)
			look()
		}
	}
	r.settle(t)
	for quiet := 0; quiet < 3; quiet++ {
		if look() {
			quiet = 0
		}
		time.Sleep(2 * time.Millisecond)
	}
	r.arrive(t, j, list, look, told)
}

// arrive waits for the attempts that must arrive. It sends missing attempts again, because a queue may have been full.
func (r *run) arrive(t *testing.T, j *judge, list []*attempt, look func() bool, told string) {
	t.Helper()
	must := slices.DeleteFunc(slices.Clone(list), func(a *attempt) bool { return !j.must(a) })
	r.arrived += len(must)
	for tries := 0; ; tries++ {
		must = slices.DeleteFunc(must, func(a *attempt) bool { return a.got })
		if len(must) == 0 {
			return
		}
		if tries == 30 {
			t.Errorf("%d attempts that the policy passes do not arrive, the first is %s\n%s", len(must), must[0], told)
			return
		}
		for _, a := range must {
			r.send(t, a)
			r.settle(t)
		}
		for range 10 {
			look()
			time.Sleep(time.Duration(tries+1) * time.Millisecond)
		}
	}
}

// judge checks that the policy does not forbid an event.
func (r *run) judge(t *testing.T, j *judge, sent map[netip.Addr]*attempt, e event, told string) {
	t.Helper()
	a := sent[e.src]
	if a == nil && r.earlier[e.src] != nil { // its packet waited for a CPU while the policy changed, so either policy may have decided
		return
	}
	if a == nil {
		t.Errorf("a socket received what nobody sent: %+v\n%s", e, told)
		return
	}
	r.received++
	if a.of != nil {
		r.spoken++
	}
	a.got = true
	if why := j.forbids(a, e); why != "" {
		r.against++
		t.Errorf("%s: %+v\n%s\n%s", why, e, a, told)
	}
}

func (r *run) report(t *testing.T) {
	var counts []string
	for _, k := range slices.Sorted(maps.Keys(r.kinds)) {
		counts = append(counts, fmt.Sprintf("%s %d", k, r.kinds[k]))
	}
	t.Logf("target %s: %d frames sent, frames that reached a socket against the policy: %d", r.home, r.frames, r.against)
	t.Logf("%d reached a socket, %d of them on connections, %d well-formed attempts had to and did; policies refused by the target: %d; frames by kind: %s",
		r.received, r.spoken, r.arrived, r.refused, strings.Join(counts, ", "))
	if len(r.kinds) != int(numKinds) {
		t.Errorf("only %d of %d kinds of frames were sent", len(r.kinds), numKinds)
	}
	if r.arrived == 0 || r.received == 0 || r.spoken == 0 {
		t.Error("nothing had to arrive")
	}
}
