// SPDX-License-Identifier: Apache-2.0

package hub_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/fleet/node"
)

// TestRestart ends an agent and starts it again, as if the daemon were killed. Lifts on the agent's host must stay, even when the file has an
// incomplete line. One own ban was lifted by the controller in the meantime. It must not be offered again, although the log of bans was rewritten,
// which gives the ban a later start. A ban that was made after the lift must be offered.
func TestRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	state := t.TempDir()
	var file *node.File
	a := f.join("a", func(n *node.File) { n.State, file = state, n })
	b := f.join("b")
	command := f.command()
	now := time.Now()
	b.ban("198.51.100.1/32", time.Hour)
	eventually(t, "a drops what b bans", func() bool { return a.drops("198.51.100.1/32") })
	a.forget("198.51.100.1/32")
	a.lift("198.51.100.1/32")
	own := node.Local{Prefix: netip.MustParsePrefix("198.51.100.2/32"), Start: now, End: now.Add(time.Hour), Why: "own"}
	forever := node.Local{Prefix: netip.MustParsePrefix("198.51.100.3/32"), Start: now, Why: "own", Manual: true}
	a.agent.Local([]node.Local{own, forever}, false)
	eventually(t, "b drops what a bans", func() bool { return b.drops("198.51.100.2/32") && b.drops("198.51.100.3/32") })
	said := filepath.Join(state, "fleet.said")
	eventually(t, "a has noted the lift", func() bool {
		text, _ := os.ReadFile(said)
		return strings.Contains(string(text), "l 198.51.100.1/32 ") && strings.Contains(string(text), "b 198.51.100.3/32 ")
	})
	a.stop()
	if err := command.Say(t.Context(), "", []netip.Prefix{own.Prefix, forever.Prefix}, 0, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b drops no more what the controller lifted", func() bool { return !b.drops("198.51.100.2/32") && !b.drops("198.51.100.3/32") })
	text, err := os.ReadFile(said)
	if err == nil {
		err = os.WriteFile(said, append(text, "l 198.51.100.1/32 1"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.run(a, file)
	own.Start, forever.Start = time.Now(), time.Now() // the log was rewritten, so the bans have a later start
	again := node.Local{Prefix: netip.MustParsePrefix("198.51.100.4/32"), Start: time.Now(), End: time.Now().Add(time.Hour)}
	a.agent.Local([]node.Local{own, forever, again}, true)
	b.ban("198.51.100.9/32", time.Hour)
	eventually(t, "a drops what came last, and b what a bans now", func() bool { return a.drops("198.51.100.9/32") && b.drops("198.51.100.4/32") })
	if a.drops("198.51.100.1/32") {
		t.Error("a drops again what its host has lifted")
	}
	if b.drops("198.51.100.2/32") || b.drops("198.51.100.3/32") {
		t.Error("b drops again what the controller has lifted")
	}
	a.ban("198.51.100.2/32", 2*time.Hour)
	eventually(t, "b drops what a has banned again", func() bool { return b.drops("198.51.100.2/32") })
}

// forget removes a ban from the host's set, as a command does.
func (h *host) forget(p string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.dropped, netip.MustParsePrefix(p))
}
