// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// daemonKills is a daemon that is killed repeatedly. Packets that the policy drops arrive all the time.
type daemonKills struct {
	*watch
	random *rand.Rand
	bans   map[string]bool // bans that the API has acknowledged
	cut    int             // answers that a kill cut off
}

// TestDaemonKills kills the daemon at random moments: while it starts, is idle, bans, and applies. No packet that the policy drops may pass. The next
// daemon must use the existing policy and bans, and serve the API again.
func TestDaemonKills(t *testing.T) {
	if !inside(t) {
		return
	}
	k := &daemonKills{watch: newWatch(t), random: testutil.Random(t), bans: map[string]bool{}}
	k.arrives()
	mustFloodwall(t, "apply", k.policy)
	k.filtered()
	received, sent := k.received.Load(), k.sent.Load()
	kills := testutil.Scaled(6, 200)
	for n := range kills {
		if k.random.IntN(4) == 0 {
			k.killStarting()
		} else {
			k.killServing(fmt.Sprintf("kill %d", n+1), fmt.Sprintf("203.0.%d.%d", n/250, n%250+1))
		}
	}
	h := startDaemon(t)
	k.foundAgain(h, "after the last kill")
	h.kill()
	k.filtered()
	if passed := k.received.Load() - received; passed > 0 {
		t.Errorf("%d packets came in that the policy drops", passed)
	}
	t.Logf("%d kills, which cut off %d answers; %d packets sent, %d came in; %d bans found again", kills, k.cut,
		k.sent.Load()-sent, k.received.Load()-received, len(k.bans))
}

// killStarting starts a daemon and kills it during its start.
func (k *daemonKills) killStarting() {
	k.Helper()
	cmd := exec.Command("floodwall", "daemon")
	if err := cmd.Start(); err != nil {
		k.Fatal(err)
	}
	k.rest(300)
	cmd.Process.Kill()
	cmd.Wait()
}

// killServing kills a daemon that is ready, while it bans an address or applies the policy.
func (k *daemonKills) killServing(when, address string) {
	k.Helper()
	h := startDaemon(k.T)
	k.foundAgain(h, when)
	path, body := "/v1/block", map[string]any{"prefixes": []string{address}, "for": "1h"}
	if k.random.IntN(4) == 0 {
		path, body = "/v1/apply", map[string]any{"policy": k.policy}
	}
	done := make(chan bool)
	go func() {
		a, err := post(controlSocket, path, body)
		if err == nil && a.status != http.StatusOK {
			k.Errorf("%s: POST %s: %v", when, path, a)
		}
		done <- err == nil
	}()
	k.rest(150)
	h.kill()
	switch acknowledged := <-done; {
	case !acknowledged:
		k.cut++
	case path == "/v1/block":
		k.bans[address+"/32"] = true
	}
}

// foundAgain waits until the API reports that the policy is in force, and checks every acknowledged ban.
func (k *daemonKills) foundAgain(h *apiHost, when string) {
	k.Helper()
	var last answer
	waitFor(k.T, when+": the policy in force", func() bool {
		var err error
		last, err = get(readSocket, "/v1/health")
		return err == nil && last.status == http.StatusOK
	})
	var entries struct {
		Entries []struct{ Prefix string }
	}
	a := h.must(http.StatusOK, readSocket, "/v1/sets/bans/entries")
	if err := json.Unmarshal([]byte(a.body), &entries); err != nil {
		k.Fatalf("%s: %v: %v", when, err, a)
	}
	found := map[string]bool{}
	for _, e := range entries.Entries {
		found[e.Prefix] = true
	}
	for ban := range k.bans {
		if !found[ban] {
			k.Errorf("%s: the ban of %s is gone: %v", when, ban, a)
			delete(k.bans, ban)
		}
	}
}

// rest sleeps for a random time of at most the given number of milliseconds.
func (k *daemonKills) rest(most int) {
	time.Sleep(time.Duration(k.random.IntN(1000*most)) * time.Microsecond)
}
