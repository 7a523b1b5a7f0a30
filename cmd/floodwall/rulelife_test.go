// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/daemon/suggest"
	"github.com/floodwall/floodwall/test/testutil"
)

// victim is a socket that is a target of the flood of TestAttack. No rule of the policy mentions it.
type victim struct {
	*testing.T
	net.PacketConn
}

const victimAddress = "192.0.2.1:4003"

func newVictim(t *testing.T) *victim {
	t.Helper()
	c, err := net.ListenPacket("udp4", victimAddress)
	if err != nil {
		t.Fatal(err)
	}
	return &victim{t, c}
}

// flood sends n packets of the attack and then one packet of a client. It returns the number of attack packets that the socket received before the
// client's packet.
func (v *victim) flood(n int) (arrived int) {
	v.Helper()
	for _, send := range []struct {
		packet string
		n      int
	}{{"udp 198.51.100.13:123 > " + victimAddress + " len=468 payload=0xd700032a", n}, {"udp 203.0.113.7:4000 > " + victimAddress + " len=100", 1}} {
		if err := testutil.Send("fw1", send.packet, send.n); err != nil {
			v.Fatal(err)
		}
	}
	b := make([]byte, 2000)
	v.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		_, from, err := v.ReadFrom(b)
		if err != nil {
			v.Fatalf("waiting for the packet of the client, after %d of the attack: %v", arrived, err)
		}
		if from.String() == "203.0.113.7:4000" {
			return arrived
		}
		arrived++
	}
}

// lifeOfRule applies the rules that suggest finds in the capture of a report. The rules first observe, then drop, and are then removed.
func (h *apiHost) lifeOfRule(file, attack string) {
	t := h.T
	t.Helper()
	const sent = 40
	v := newVictim(t)
	defer v.Close()
	suggested := func() (packets uint64) {
		for _, r := range h.commandStatus().Rules {
			if strings.HasPrefix(r.Name, "suggested-") {
				packets += r.Packets
			}
		}
		return packets
	}
	dir := filepath.Dir(file)
	observed, promoted := filepath.Join(dir, "observed.yaml"), filepath.Join(dir, "promoted.yaml")
	out := mustFloodwall(t, "suggest", file, "--attack", attack, "--baseline", filepath.Join(dir, "good.pcapng"), "--write", observed, "--apply")
	if !strings.Contains(out, "observe: true") || !strings.Contains(out, "observed.yaml is on trial for 10m") {
		t.Errorf("suggest:\n%s", out)
	}
	mustFloodwall(t, "confirm")
	if n := v.flood(sent); n != sent || suggested() != sent {
		t.Errorf("with observe, %d of %d packets arrived, and the rules counted %d", n, sent, suggested())
	}
	text, err := os.ReadFile(observed)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, promoted, strings.ReplaceAll(string(text), "observe: true, ", ""))
	mustFloodwall(t, "apply", promoted)
	before := suggested()
	if n := v.flood(sent); n != 0 || suggested()-before != sent {
		t.Errorf("without observe, %d of %d packets arrived, and the rules counted %d", n, sent, suggested()-before)
	}
	mustFloodwall(t, "apply", file)
	if n := v.flood(sent); n != sent {
		t.Errorf("without the rules, %d of %d packets arrived", n, sent)
	}
}

// ruleExpires adds the suggested rules of a report temporarily. The rules first observe. After their promotion they drop. Then they end by the
// kernel's clock, while no process of Floodwall runs.
func (h *apiHost) ruleExpires(rules []suggest.Rule) {
	t := h.T
	t.Helper()
	const sent = 40
	v := newVictim(t)
	defer v.Close()
	h.kill()
	add := func(observe, lasts string) {
		t.Helper()
		for i, r := range rules {
			if !strings.Contains(r.Text, ", observe: true") {
				t.Fatalf("the suggestion does not observe: %s", r.Text)
			}
			mustFloodwall(t, "temporary", "add", strings.Replace(r.Text, ", observe: true", observe, 1), "--for", lasts, "--name", fmt.Sprintf("ends-%d", i))
		}
	}
	add(", observe: true", "10m")
	if n := v.flood(sent); n != sent {
		t.Errorf("with observe, %d of %d packets arrived", n, sent)
	}
	counted := uint64(0)
	for i, r := range temporaryRules(t) {
		counted += r.Packets
		mustFloodwall(t, "temporary", "remove", fmt.Sprintf("ends-%d", i))
	}
	if counted != sent {
		t.Errorf("the rules that observe counted %d of %d packets", counted, sent)
	}
	until := time.Time{}
	for lasts := 5 * time.Second; ; lasts *= 2 {
		began := time.Now()
		add("", lasts.String())
		n := v.flood(sent)
		until = time.Now().Add(lasts + time.Second) // one more, as ends are whole seconds
		if time.Since(began) > lasts-time.Second {
			continue // on a busy machine the rules may have ended before the flood
		}
		if n != 0 {
			t.Errorf("while the rules last, %d of %d packets arrived", n, sent)
		}
		break
	}
	time.Sleep(time.Until(until))
	if n := v.flood(sent); n != sent {
		t.Errorf("after their end, without a process, %d of %d packets arrived", n, sent)
	}
	if left := temporaryRules(t); len(left) != 0 {
		t.Errorf("after their end: %+v", left)
	}
}
