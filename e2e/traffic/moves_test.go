// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/ban"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/testutil"
)

// Payloads of the packets of TestMovesCount.
const (
	allowed   = "0x00"
	forbidden = "0x01"
)

// TestMovesCount moves the program between tc and XDP while an attacker sends to an open, a limited and a closed port. In between, addresses are banned
// that send to the open port. No forbidden packet may reach a socket. Each packet must be counted once, and must be charged to the limit once: the
// limit passes as many packets as its rate and its burst allow, with a tolerance of 1%, and of a fifth of a second in which the sender starts and ends.
func TestMovesCount(t *testing.T) {
	inScene(t, func(s *scene) {
		if features.TCX() != nil {
			return
		}
		const rate, burst = 200, 200
		s.apply(plan.TargetXDP, fmt.Sprintf(`xdp: flooded
default: drop
checks: off
sets:
  bans: {dynamic: true, max: 5000, timeout: 1h}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: exceeded, port: udp/5001, over: {rate: %d/s, burst: %d}, then: drop}
  - {name: limited, port: udp/5001, then: pass}
  - {name: open, port: udp/5000, then: pass}
  - {name: closed, port: udp/9, then: drop}
`, rate, burst))
		s.listen("10.0.0.2:5000", "10.0.0.2:5001", "10.0.0.2:9")
		var got [3]struct{ allowed, forbidden atomic.Uint64 }
		for i, c := range s.sockets {
			go func() {
				for b := make([]byte, 64); ; {
					n, _, err := c.ReadFrom(b)
					if err != nil {
						return
					}
					if n == 1 && b[0] == 0 {
						got[i].allowed.Add(1)
					} else {
						got[i].forbidden.Add(1)
					}
				}
			}()
		}
		a := newPacedSender(s)
		a.send(s.frames("udp 10.0.0.1:9 > 10.0.0.2:5000 payload="+allowed,
			"udp 10.0.0.1:9 > 10.0.0.2:5001 payload="+allowed, "udp 10.0.0.1:9 > 10.0.0.2:9 payload="+forbidden)...)
		begin := time.Now()
		end := a.start()
		for i := range testutil.Scaled(10, 500) {
			from := netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)})
			frames := func(payload string) [][]byte {
				return s.frames(fmt.Sprintf("udp %s:9 > 10.0.0.2:5000 payload=%s", from, payload))
			}
			last := a.send(frames(allowed)...)
			moveByFlood(t, s.ctx, s.Instance, s.server, i%2 == 1)
			err := s.server.Do(func() error {
				_, err := s.Block(s.ctx, "bans", []ban.Ban{{Prefix: netip.PrefixFrom(from, 32)}})
				return err
			})
			if err != nil {
				s.Fatal(err)
			}
			a.replace(last, frames(forbidden)[0])
			time.Sleep(20 * time.Millisecond)
			moveByFlood(t, s.ctx, s.Instance, s.server, i%2 == 0)
			time.Sleep(20 * time.Millisecond)
			a.remove(last)
		}
		sent, pause := end()
		took := time.Since(begin).Seconds()

		counted := func() (sum uint64) {
			for _, rule := range []string{"banned", "exceeded", "limited", "open", "closed"} {
				sum += s.counted(rule)
			}
			return sum
		}
		lost := a.dropped()
		testutil.Eventually(patience, func() bool { return counted()+lost >= sent })
		late := time.Since(begin).Seconds() // the last packets may wait for a CPU
		if n := counted(); n > sent || n+lost < sent {
			t.Errorf("%d packets are counted, of %d; the link dropped %d", n, sent, lost)
		}
		for i := range got {
			if n := got[i].forbidden.Load(); n > 0 {
				t.Errorf("socket %d has got %d forbidden packets", i, n)
			}
		}
		for rule, socket := range map[string]int{"open": 0, "limited": 1} {
			want := s.counted(rule)
			arrives := func() bool { return got[socket].allowed.Load()+s.fullSockets() >= want }
			if n := got[socket].allowed.Load(); !testutil.Eventually(patience, arrives) || n > want {
				t.Errorf("%s has passed %d packets, and %d have arrived; %d found a full socket", rule, want, n, s.fullSockets())
			}
		}
		least, most, passed := burst+rate*took, burst+rate*late, float64(s.counted("limited"))
		t.Logf("%d packets in %.1f s, longest pause %v; %.0f of %.0f passed by the limit", sent, took, pause, passed, least)
		if passed > 1.01*most || pause < time.Second/5 && passed < 0.99*least-rate/5 {
			t.Errorf("the limit has passed %.0f packets, and allows %.0f to %.0f", passed, least, most)
		}
	})
}

// fullSockets returns the number of datagrams that found no space in a socket of the server, whose reader waited for a CPU.
func (s *scene) fullSockets() (n uint64) {
	s.Helper()
	err := s.server.Do(func() error {
		all, err := counters("/proc/thread-self/net/snmp")
		n = all["Udp:RcvbufErrors"]
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// pacedSender sends a list of frames about every millisecond from the attacker.
type pacedSender struct {
	*scene
	mu     sync.Mutex
	frames map[int][]byte
	last   int
}

func newPacedSender(s *scene) *pacedSender { return &pacedSender{scene: s, frames: map[int][]byte{}} }

// send adds frames, and returns the number of the last one.
func (a *pacedSender) send(frames ...[]byte) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range frames {
		a.last++
		a.frames[a.last] = f
	}
	return a.last
}

func (a *pacedSender) replace(number int, frame []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.frames[number] = frame
}

func (a *pacedSender) remove(number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.frames, number)
}

// round returns the frames of one round.
func (a *pacedSender) round() [][]byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.frames))
}

// dropped returns the number of frames that the sender's device has dropped: a program that comes to XDP, or goes, may find its rings full.
func (a *pacedSender) dropped() (n uint64) {
	a.Helper()
	err := a.attacker.Do(func() error {
		dev, err := netlink.LinkByName("server")
		if err == nil {
			n = dev.Attrs().Statistics.TxDropped
		}
		return err
	})
	if err != nil {
		a.Fatal(err)
	}
	return n
}

// start begins to send. end returns the number of the frames that were sent, and the longest pause between two rounds.
func (a *pacedSender) start() (end func() (sent uint64, pause time.Duration)) {
	var sent uint64
	var longest time.Duration
	stop, done, last := make(chan struct{}), make(chan error, 1), time.Now()
	go func() {
		done <- a.attacker.Do(func() error {
			return testutil.SendFrames("server", func() (frames [][]byte) {
				select {
				case <-stop:
					return nil
				case <-time.After(time.Millisecond):
				}
				longest = max(longest, time.Since(last))
				frames, last = a.round(), time.Now()
				sent += uint64(len(frames))
				return frames
			})
		})
	}()
	return func() (uint64, time.Duration) {
		a.Helper()
		close(stop)
		if err := <-done; err != nil {
			a.Fatal(err)
		}
		return sent, longest
	}
}
