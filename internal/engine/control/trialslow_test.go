// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/test/testutil"
)

// slowTool is a script that runs before the real tool. It delays a call that changes guards or tables by the time in a file, as on a busy machine.
const slowTool = `#!/bin/sh
case "$0 $*" in *ipset*restore*|*"-f -"*) sleep $(cat DIR/delay) ;; esac
exec REAL "$@"
`

// slowTools installs slowTool in front of each real tool. At first there is no delay.
func (h *host) slowTools() (delay func(time.Duration)) {
	h.Helper()
	dir := h.TempDir()
	delay = func(d time.Duration) {
		if err := os.WriteFile(filepath.Join(dir, "delay"), fmt.Append(nil, d.Seconds()), 0o600); err != nil {
			h.Fatal(err)
		}
	}
	delay(0)
	for _, tool := range []string{"nft", "ipset"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			h.Fatal(err)
		}
		script := strings.NewReplacer("DIR", dir, "REAL", path).Replace(slowTool)
		if err := os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o755); err != nil {
			h.Fatal(err)
		}
	}
	h.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return delay
}

// Ports to which both policies of a slow trial drop packets. If the policy also needs netfilter, netfilter rejects packets to one of them.
var forbidden = []int{4000, 4001}

// forbids returns the way's policy, with rules for the forbidden ports.
func (w way) forbids(name string, port int) string {
	verdict := "drop"
	if w.beside {
		verdict = "reject"
	}
	return w.policy(name, port) + fmt.Sprintf(`  - {name: both, proto: udp, port: %d, then: drop}
  - {name: both-too, proto: udp, port: %d, then: %s}
`, forbidden[0], forbidden[1], verdict)
}

// watch sends packets to the forbidden ports until stop is called. stop returns the port and the time of each packet that has arrived.
func (e *ends) watch() (stop func() (through []string)) {
	e.Helper()
	began := time.Now()
	var through []string
	var mu sync.Mutex
	var readers, senders sync.WaitGroup
	var sockets []*net.UDPConn
	for _, port := range forbidden {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: port})
		if err != nil {
			e.Fatal(err)
		}
		sockets = append(sockets, c)
		readers.Go(func() {
			for {
				if _, _, err := c.ReadFromUDP(make([]byte, 2048)); err != nil {
					return
				}
				mu.Lock()
				through = append(through, fmt.Sprintf("port %d after %v", port, time.Since(began).Round(time.Millisecond)))
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	senders.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
			for _, port := range forbidden {
				if err := testutil.Send("fw1", fmt.Sprintf("udp 192.0.2.9:5555 > 192.0.2.1:%d", port), 1); err != nil {
					e.Error(err)
				}
			}
		}
	})
	return func() []string {
		close(done)
		senders.Wait()
		for _, c := range sockets {
			c.Close()
		}
		readers.Wait()
		return through
	}
}

// TestTrialSlow applies a policy with the shortest trial, while each change of netfilter takes longer than the time between the deadlines of XDP and
// netfilter. Packets that both policies drop must never pass. After the apply, the new policy must have its full time to be confirmed. At the end
// only the old policy may decide.
func TestTrialSlow(t *testing.T) {
	pairs := [][2]way{{ways[3], ways[0]}, {ways[1], ways[2]}}
	if testutil.Long() {
		pairs = nil
		for _, from := range ways {
			for _, to := range ways {
				pairs = append(pairs, [2]way{from, to})
			}
		}
	}
	for _, pair := range pairs {
		from, to := pair[0], pair[1]
		t.Run("from "+from.name+" to "+to.name, func(t *testing.T) {
			e := newEnds(t)
			if e == nil {
				return
			}
			e.slowTrial(from, to)
		})
	}
}

func (e *ends) slowTrial(from, to way) {
	delay := e.slowTools()
	if _, err := e.try(from.forbids("old", 1000), control.ApplyOptions{Target: from.target}); err != nil {
		e.Fatalf("old policy: %v", err)
	}
	e.wantDecider("before the trial", "old")
	stop := e.watch()
	delay(time.Second)
	_, err := e.try(to.forbids("new", 2000), control.ApplyOptions{Target: to.target, Confirm: netfilter.MinTrial})
	delay(0)
	if err != nil {
		e.Fatalf("new policy: %v", err)
	}
	if got := e.decider(); got != "new" {
		e.Errorf("after the apply %s decides, want new", got)
	}
	e.awaitDecider("old")
	if through := stop(); through != nil {
		e.Errorf("%d packets that both policies forbid passed: %s ... %s", len(through), through[0], through[len(through)-1])
	}
	if number, err := e.FinishTrial(e.Context()); err != nil || number == 0 {
		e.Errorf("settling: generation %d, %v", number, err)
	}
	e.wantDecider("after settling", "old")
	e.clear()
}

// awaitDecider waits until the kernel has returned to a policy by itself. Meanwhile both policies, or only the one that returns, may decide about a
// packet. At every moment at least one of them must decide.
func (e *ends) awaitDecider(want string) {
	e.Helper()
	for end := time.Now().Add(time.Minute); ; {
		got := e.decider()
		if got == want {
			return
		}
		if got == "nothing" && want != "nothing" || time.Now().After(end) {
			e.Fatalf("%s decides, want %s", got, want)
		}
	}
}
