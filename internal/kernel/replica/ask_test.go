// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// furnished makes the device fw0 (192.0.2.1) and loads an nft script in the namespaces of the test. Outside of the namespaces it returns false.
func furnished(t *testing.T, script string) bool {
	t.Helper()
	testutil.RequireTool(t, "nft")
	if !testutil.Inside(t) {
		return false
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	return true
}

func parsed(t *testing.T, line string) ([]byte, packet.Packet) {
	t.Helper()
	spec, err := packet.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return spec.Frame(), spec.Packet()
}

// TestAnswer sends packets through a copy of a table with rules at each hook. The table has already counted packets, and is inert, as before a trial.
func TestAnswer(t *testing.T) {
	if !furnished(t, `table inet ours {
		counter one { packets 7 bytes 700 }
		counter two { packets 0 bytes 0 }
		set _trial { type nf_proto; flags timeout; }
		set bans { type ipv4_addr; flags timeout; timeout 1h; elements = { 198.51.100.9 timeout 2h expires 30m comment "packets 1 bytes 2" }; }
		chain a { type filter hook ingress device "fw0" priority -450
			meta nfproto != @_trial accept comment "floodwall: trial"
			udp dport 1 counter name "one" drop
		}
		chain b { type filter hook prerouting priority -450
			ip saddr @bans counter name "two" drop
			udp dport 2 counter name "one"
		}
		chain c { type filter hook input priority 0; ct state established counter name "two" drop; }
	}`) {
		return
	}
	for _, test := range []struct {
		packet string
		want   Answer
	}{
		{"udp 198.51.100.7:999 > 192.0.2.1:1", Answer{Moved: []string{"one"}, Dropped: Ingress}},
		{"udp 198.51.100.7:999 > 192.0.2.1:2", Answer{Moved: []string{"one"}, State: "new"}},
		{"udp 198.51.100.9:999 > 192.0.2.1:2", Answer{Moved: []string{"two"}, Dropped: Prerouting}},
		{"udp 198.51.100.7:999 > 192.0.2.1:3 state=established", Answer{Moved: []string{"two"}, Dropped: Input, State: "established"}},
		{"udp 198.51.100.7:999 > 192.0.2.1:3 state=related", Answer{State: "related"}},
		{"udp 198.51.100.7:999 > 192.0.2.1:3 state=untracked", Answer{State: "untracked"}},
		{"tcp 198.51.100.7:999 > 192.0.2.1:3 A state=invalid", Answer{State: "invalid"}},
		{"udp 198.51.100.7:999 > 192.0.2.1:3 vlan=5,6", Answer{Lost: Ingress}},
		{"udp 198.51.100.7:999 > 203.0.113.1:3", Answer{Lost: Input}},
	} {
		frame, p := parsed(t, test.packet)
		got, err := Ask(context.Background(), Part{Tool: Nft, Name: "ours", Devices: []string{"fw0"}}, frame, p)
		if err != nil {
			t.Errorf("%s: %v", test.packet, err)
		} else if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.packet, diff)
		}
	}
}

// TestErrors asks questions that cannot be answered.
func TestErrors(t *testing.T) {
	if !furnished(t, "table inet ours {}") {
		return
	}
	frame, p := parsed(t, "udp 198.51.100.7:999 > 192.0.2.1:1")
	part := Part{Tool: Nft, Name: "ours", Devices: []string{"fw0"}}

	var late *TimeError
	if _, err := ask(context.Background(), part, frame, p, time.Millisecond); !errors.As(err, &late) || late.Hint() == "" ||
		!strings.Contains(late.Error(), "takes longer than 1ms") {
		t.Errorf("out of time: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Ask(ctx, part, frame, p); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := Ask(context.Background(), part, frame[:13], p); err == nil || !strings.Contains(err.Error(), "shorter than an Ethernet header") {
		t.Errorf("13 bytes: %v", err)
	}
	part.Name = "theirs"
	var tool *netfilter.ToolError
	if _, err := Ask(context.Background(), part, frame, p); !errors.As(err, &tool) || !strings.Contains(err.Error(), "reading table theirs") {
		t.Errorf("no such table: %v", err)
	}
}
