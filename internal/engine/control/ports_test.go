// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
	"golang.org/x/sys/unix"
)

// bridged is a host with a socket for each port to which the test sends frames. Frames that are bridged leave at the other end of its second device.
type bridged struct {
	*host
	here  map[int]*net.UDPConn
	there int          // a packet socket at the other end of the second device
	came  map[int]bool // the ports of frames that arrived at that end
}

// Destination ports of frames. Rules without conntrack drop frames to the first port. Rules with conntrack drop frames to the second port. No rule
// drops frames to the third port.
const (
	plainPort, statePort, freePort = 1000, 1001, 1003
	bridgePolicy                   = `
default: pass
checks: off
rules:
  - {name: plain, proto: udp, port: 1000, then: drop}
`
	stateRule = "  - {name: state, proto: udp, port: 1001, state: [new, established], then: drop}\n"
)

// The Ethernet address of all devices of the host, and that of a host behind it.
const hostMAC, behindMAC = "02:00:00:00:00:02", "02:00:00:00:00:03"

func newBridged(t *testing.T) *bridged {
	t.Helper()
	h := newHost(t)
	if h == nil {
		return nil
	}
	b := &bridged{host: h, here: map[int]*net.UDPConn{}, came: map[int]bool{}}
	testutil.Veth(t, "pt0", "pt1")
	h.ip("link set fw0 address "+hostMAC, "link add br0 address "+hostMAC+" type bridge", "link set br0 up", "link set pt0 master br0")
	for _, port := range []int{plainPort, statePort, freePort} {
		s, err := net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		b.here[port] = s
	}
	pt1, err := net.InterfaceByName("pt1")
	if err != nil {
		t.Fatal(err)
	}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
	if b.there, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(b.there) })
	if err := unix.Bind(b.there, &unix.SockaddrLinklayer{Protocol: all, Ifindex: pt1.Index}); err != nil {
		t.Fatal(err)
	}
	return b
}

// join makes fw0 a port of the bridge, which takes over the address of fw0. If in is false, it undoes this.
func (b *bridged) join(in bool) {
	b.Helper()
	b.ip("addr flush dev fw0", "addr flush dev br0")
	if in {
		b.ip("link set fw0 master br0", "addr add 192.0.2.1/24 dev br0")
		return
	}
	b.ip("link set fw0 nomaster", "addr add 192.0.2.1/24 dev fw0")
}

// passes sends a frame to each port from outside, to the Ethernet address of the host or of a host behind it. It returns the ports whose frames
// arrive. The last frame is the one that no rule drops. It must arrive.
func (b *bridged) passes(to, address string) (ports []int) {
	b.Helper()
	ethernet, err := net.ParseMAC(to)
	if err != nil {
		b.Fatal(err)
	}
	var frames [][]byte
	all := []int{plainPort, statePort, freePort}
	for _, port := range all {
		spec, err := packet.Parse("udp 192.0.2.9:5 > " + net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			b.Fatal(err)
		}
		frame := spec.Frame()
		copy(frame, ethernet)
		frames = append(frames, frame)
	}
	sent, restore := false, testutil.OnOneCPU(b) // the frame to freePort must come last
	err = testutil.SendFrames("fw1", func() [][]byte {
		if sent {
			return nil
		}
		sent = true
		return frames
	})
	restore()
	if err != nil {
		b.Fatal(err)
	}
	comes := b.comesBehind
	if to == hostMAC {
		comes = b.comesHere
	}
	if !testutil.Eventually(slow, func() bool { return comes(freePort) }) {
		b.Fatalf("a frame for %s that nothing drops does not come out", to)
	}
	return slices.DeleteFunc(all, func(port int) bool { return port != freePort && !comes(port) })
}

// comesHere reads from a socket of the host, and reports whether a packet has arrived.
func (b *bridged) comesHere(port int) (came bool) {
	for wait := 20 * time.Millisecond; testutil.Arrives(b, b.here[port], wait); wait = 0 {
		came = true
	}
	return came
}

// comesBehind reports whether a frame to a port has arrived behind the host.
func (b *bridged) comesBehind(port int) bool {
	frame := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(b.there, frame, 0)
		if err != nil {
			came := b.came[port]
			b.came[port] = false
			return came
		}
		if n >= 38 && frame[12] == 8 && frame[13] == 0 && frame[23] == unix.IPPROTO_UDP {
			b.came[int(frame[36])<<8|int(frame[37])] = true
		}
	}
}

// TestBridgePort makes the device of a policy a port of a bridge. XDP and the ingress hook must still filter the device's packets, for the host and
// for other hosts on the bridge. Rules at raw and filter then do not filter them. So apply, status, repair and the daemon must name these rules,
// until the device is no longer a port or the policy names the bridge instead.
func TestBridgePort(t *testing.T) {
	b := newBridged(t)
	if b == nil {
		return
	}
	only := "these do not filter what it receives: state; name br0 in `devices` in its place"
	for _, c := range []struct {
		target plan.Target
		rules  string
		passes []int // ports to which frames get through while the device is a port of the bridge
		says   string
	}{
		{plan.TargetXDP, bridgePolicy, []int{statePort, freePort}, ""},
		{plan.TargetXDP, bridgePolicy + stateRule, []int{statePort, freePort}, only},
		{plan.TargetNftables, bridgePolicy, []int{statePort, freePort}, ""},
		{plan.TargetNftables, bridgePolicy + stateRule, []int{statePort, freePort}, only + ", or apply with `--target xdp`"},
		{plan.TargetIptables, bridgePolicy + stateRule, []int{plainPort, statePort, freePort}, "nothing of the policy filters what it receives; name br0"},
	} {
		says := func(when string, texts []string, want bool) {
			t.Helper()
			text := strings.Join(texts, "\n")
			says := c.says != "" && want
			if strings.Contains(text, "is a port of") != says || says && !strings.Contains(text, "device fw0 is a port of bridge br0") || !strings.Contains(text, c.says) && says {
				t.Errorf("%s, %s: says %q; want %t, %q", c.target, when, text, want, c.says)
			}
		}
		state := func(when string, want bool) {
			t.Helper()
			s, err := b.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			says(when+", status", s.Open, want)
			r, err := b.Repair(t.Context())
			if err != nil || r.Any() {
				t.Errorf("%s, %s: repair: %+v, %v", c.target, when, r, err)
			}
			says(when+", repair", r.Missed, want)
		}
		apply := func(devices ...string) []string {
			t.Helper()
			applied, err := b.try(c.rules, control.ApplyOptions{Target: c.target, Devices: devices})
			if err != nil {
				t.Fatal(err)
			}
			return applied.Notes
		}
		b.join(false)
		says("apply beside the bridge", apply(), false)
		filtered := []int{freePort}
		if !strings.Contains(c.rules, stateRule) {
			filtered = []int{statePort, freePort}
		}
		if got := b.passes(hostMAC, "192.0.2.1"); !slices.Equal(got, filtered) {
			t.Errorf("%s, beside the bridge: %v pass, not %v", c.target, got, filtered)
		}
		state("beside the bridge", false)
		w := b.watch()
		b.join(true)
		if got := b.passes(hostMAC, "192.0.2.1"); !slices.Equal(got, c.passes) {
			t.Errorf("%s, through the bridge: %v pass, not %v", c.target, got, c.passes)
		}
		if got := b.passes(behindMAC, "192.0.2.3"); !slices.Equal(got, c.passes) {
			t.Errorf("%s, over the bridge: %v pass, not %v", c.target, got, c.passes)
		}
		state("on the bridge", true)
		if c.says != "" {
			w.wantEvent("device fw0 is a port of bridge br0")
		}
		w.wantNoError()
		w.stop()
		says("apply on the bridge", apply(), true)
		says("apply to the bridge", apply("br0"), false)
		state("the bridge in its place", false)
		if got := b.passes(hostMAC, "192.0.2.1"); !slices.Equal(got, filtered) {
			t.Errorf("%s, the bridge in its place: %v pass, not %v", c.target, got, filtered)
		}
		if c.target != plan.TargetXDP { // the kernel attaches no XDP program to a port of a bridge that has one
			says("apply to both", apply("fw0", "br0"), false)
			state("the bridge and its port", false)
		}
		if err := b.Unload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
