// SPDX-License-Identifier: Apache-2.0

package testutil_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestJudge tests the Judge with rules at each hook.
func TestJudge(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.RequireTool(t, "nft")
	j := testutil.NewJudge(t, "fw0", "fw1", true, "192.0.2.1/24", "2001:db8::1/64")
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(`table inet rules {
		chain a { type filter hook ingress device "fw0" priority -450; udp dport 1 drop; }
		chain b { type filter hook prerouting priority -300; udp dport 2 drop; udp dport 5 notrack; }
		chain e { type filter hook prerouting priority -450; udp dport 6 drop; }
		chain c { type filter hook input priority 0; udp dport 3 drop; }
		chain d { type filter hook forward priority 0; udp dport 3 drop; }
	}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	lines := []struct {
		packet  string
		dropped string
		state   string
	}{
		{"udp 192.0.2.9:999 > 192.0.2.1:1", "ingress", ""},
		{"udp 192.0.2.9:999 > 192.0.2.1:2", "raw", ""},
		{"udp 192.0.2.9:999 > 192.0.2.1:6", "prerouting", ""},
		{"udp 192.0.2.9:999 > 192.0.2.1:3", "input", "new"},
		{"udp 192.0.2.9:999 > 198.51.100.1:3", "forward", "new"},
		{"udp 192.0.2.9:999 > 192.0.2.1:4", "", "new"},
		{"udp 192.0.2.9:999 > 192.0.2.1:5", "", "untracked"},
		{"udp [2001:db8::9]:999 > [2001:db8::1]:3 vlan=5", "", ""},
		{"udp [2001:db8::9]:999 > [2001:db8::1]:3", "input", "new"},
		{"tcp 192.0.2.9:999 > 192.0.2.1:4 SF", "", "invalid"},
	}
	var frames [][]byte
	for _, l := range lines {
		spec, err := packet.Parse(l.packet)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, spec.Frame())
	}
	fates, err := j.Fates(frames)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range lines {
		got := []string{fates[i].Dropped, fates[i].State}
		if diff := cmp.Diff([]string{l.dropped, l.state}, got); diff != "" {
			t.Errorf("%s (seen at %v): dropped at, state (-want +got):\n%s", l.packet, fates[i].Seen, diff)
		}
	}
}
