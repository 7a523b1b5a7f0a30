// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// idle is a protection that never becomes active under the load of these tests. early is a protection that always becomes active.
const (
	idle  = "start: 1000000/s"
	early = "start: {rate: 2/s, burst: 1}, stop: {rate: 1/s, burst: 1}"
)

// TestChanges changes the protection in every way while connections continue and new ones start.
func TestChanges(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := testutil.Random(t)
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.echo()
				s.protect(always, "")
				s.ageKeys()
				l := s.newLoad(testutil.Scaled(4, 10), testutil.Scaled(4, 10))
				l.while(200 * time.Millisecond)
				l.during("a rotation of keys")
				if !s.rotate() {
					t.Error("the keys are not rotated")
				}
				l.while(200 * time.Millisecond)
				changes := []string{idle, always, early, "when: always, mss: 1400", idle, early}
				for _, syn := range changes[:testutil.Scaled(4, 6)] {
					l.during("the change to %s", syn)
					s.protect(syn, "")
					l.while(200 * time.Millisecond)
				}
				l.during("another policy")
				s.protect(always, "rules:\n  - {name: other, proto: udp, port: 9999, then: drop}\n")
				l.while(200 * time.Millisecond)
				s.killApplies(l, r)
				l.end()
			})
		})
	}
}

// TestHandshakes changes the protection between a SYN-ACK and the ACK that answers it.
func TestHandshakes(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.echo()
				s.protect(always, "")
				s.ageKeys()
				changes := []func(){
					func() { s.rotate() },
					func() { s.protect(always+", mss: 1300", "") },
					func() { s.protect(idle, "") },
				}
				for i, change := range changes {
					var peers []*peer
					for j, to := range servers {
						p := s.newPeer(to, uint16(20_000+2*i+j))
						p.knock("")
						peers = append(peers, p)
					}
					change()
					for _, p := range peers {
						p.say(fmt.Sprintf("after change %d", i))
					}
				}
			})
		})
	}
}

// TestHandshakesToXDP puts XDP in front of SYNPROXY between SYNPROXY's SYN-ACK and the ACK that answers it. It does so once by an apply, and once by
// the end of a trial.
func TestHandshakesToXDP(t *testing.T) {
	for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			t.Parallel()
			synInScene(t, "router", 1, 1500, func(s *synScene) {
				s.echo()
				handshakes := func(first uint16, change func()) {
					var started []*peer
					for i, to := range servers {
						p := s.newPeer(to, first+uint16(i))
						p.knock("")
						started = append(started, p)
					}
					change()
					for _, p := range started {
						p.send(segment{flags: ".", options: p.stamps()})
						p.awaitWindow()
						p.say("after the change")
					}
				}
				s.protect(always, "")
				handshakes(20_000, func() { s.target = plan.TargetXDP; s.protect(idle, "") })
				s.target = target
				if _, err := s.tryProtect(always, "", time.Hour); err != nil {
					s.Fatal(err)
				}
				handshakes(20_010, s.giveUp)
			})
		})
	}
}

// giveUp rolls back the policy on trial.
func (s *synScene) giveUp() {
	s.Helper()
	if err := s.protects.Do(func() error { _, err := s.Rollback(s.ctx); return err }); err != nil {
		s.Fatal(err)
	}
}

// TestSwitch turns the protection on and off while connections continue and new ones start. A router must track connections before that, because
// SYNPROXY interferes with untracked connections.
func TestSwitch(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.echo()
				if mode == "router" {
					s.track()
				}
				s.protect("off", "")
				l := s.newLoad(testutil.Scaled(4, 10), testutil.Scaled(4, 10))
				l.while(200 * time.Millisecond)
				for _, syn := range []string{always, "off", early, "off", idle} {
					l.during("the change to %s", syn)
					s.protect(syn, "")
					l.while(300 * time.Millisecond)
				}
				l.during("unloading")
				s.unload()
				l.while(300 * time.Millisecond)
				l.end()
			})
		})
	}
}

// TestMovesByFlood moves the program between tc and XDP, as at the begin and the end of floods, while connections continue and new ones start. In
// between, processes that move it are killed at random moments.
func TestMovesByFlood(t *testing.T) {
	synInScene(t, "host", 1, 1500, func(s *synScene) {
		if features.TCX() != nil {
			return
		}
		s.echo()
		s.protect(always, "xdp: flooded\n")
		l, r := s.newLoad(testutil.Scaled(4, 10), testutil.Scaled(4, 10)), testutil.Random(t)
		for i := range testutil.Scaled(20, 1000) {
			flood := i%2 == 1
			l.during("move %d", i)
			if n := s.move(flood); n != len(s.devices) {
				s.Fatalf("move %d moves %d of the devices %v", i, n, s.devices)
			}
			if i%4 == 3 {
				after := time.Duration(r.Int64N(int64(400 * time.Millisecond)))
				l.during("move %d, which was killed after %v", i, after)
				s.killChild(fmt.Sprint(moves, !flood), after)
				l.while(20 * time.Millisecond)
				s.move(flood)
			}
			l.while(50 * time.Millisecond)
		}
		for _, flood := range []bool{true, false} { // at least one of these moves changes the mode, and so ends what a killed process has left
			s.move(flood)
		}
		l.end()
		if left, err := filepath.Glob(s.Dir + "/generation-*/*mark*"); err != nil || left != nil {
			t.Errorf("the last move leaves %v (error %v)", left, err)
		}
	})
}

// move moves the program to XDP or to tc. It returns the number of the devices that it has moved.
func (s *synScene) move(flood bool) int {
	s.Helper()
	return moveByFlood(s.T, s.ctx, s.Instance, s.protects, flood)
}

// moveByFlood moves the program of an instance on a host to XDP or to tc. It returns the number of the devices that it has moved.
func moveByFlood(t *testing.T, ctx context.Context, in control.Instance, on *lab.Host, flood bool) (n int) {
	t.Helper()
	err := on.Do(func() error {
		moved, _, err := in.MoveByFlood(ctx, "", func(policy.XDP) (bool, bool) { return flood, true })
		n = len(moved)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ageKeys makes the keys of the cookies as old as the machine. An apply makes new keys, and keys last for minutes, so without this no rotation would
// be due in a test. Call it before any cookie exists.
func (s *synScene) ageKeys() {
	s.Helper()
	pins, err := filepath.Glob(s.Dir + "/generation-*/*syn_keys")
	if err != nil || len(pins) != 1 {
		s.Fatalf("keys: %v, %v", pins, err)
	}
	m, err := ebpf.LoadPinnedMap(pins[0], nil)
	if err != nil {
		s.Fatal(err)
	}
	defer m.Close()
	const rotated = 4 // struct syn_keys of bpf/flow.h, in words
	var keys [image.SynKeysSize / 8]uint64
	err = m.Lookup(uint32(0), &keys)
	keys[rotated] = 0
	if err := errors.Join(err, m.Put(uint32(0), keys)); err != nil {
		s.Fatal(err)
	}
}

// rotate makes a new key for cookies if one is due. It reports whether it made one.
func (s *synScene) rotate() (rotated bool) {
	s.Helper()
	err := s.protects.Do(func() (err error) { rotated, err = s.RotateKeys(s.ctx); return err })
	if err != nil {
		s.Fatal(err)
	}
	return rotated
}

// childVar is the environment variable with the directory and the policy that a child process of this test applies. With moves and a truth value in
// place of the policy, the child moves the program, to XDP if the value is true.
const (
	childVar = "FLOODWALL_TEST_APPLY"
	moves    = "moves "
)

// TestChild is not a test. It is the code of a child process that other tests start and kill.
func TestChild(t *testing.T) {
	dir, text, found := strings.Cut(os.Getenv(childVar), "\n")
	if !found {
		return
	}
	in := control.Instance{Dir: dir}
	do := func() error {
		_, _, err := in.MoveByFlood(t.Context(), "", func(policy.XDP) (bool, bool) { return text == moves+"true", true })
		return err
	}
	if !strings.HasPrefix(text, moves) {
		p, err := policy.Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		do = func() error { _, err := in.Apply(t.Context(), p, control.ApplyOptions{}); return err }
	}
	fmt.Println("ready")
	if err := do(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("done")
	select {} // until it is killed
}

// kills is the number of times that an apply is killed.
func kills() int { return testutil.Scaled(2, 200) }

// killApplies starts child processes that apply policies, and kills them at random moments.
func (s *synScene) killApplies(l *load, r *rand.Rand) {
	s.Helper()
	takes := s.killChild(s.source(always), 0)
	for i := range kills() {
		syn := []string{idle, always, early}[r.IntN(3)]
		after := time.Duration(r.Int64N(int64(takes)))
		l.during("kill %d, of an apply of %s after %v of %v", i, syn, after, takes)
		s.killChild(s.source(syn), after)
		l.while(50 * time.Millisecond)
	}
	l.during("the apply after the kills")
	s.protect(always, "")
	l.while(100 * time.Millisecond)
}

// killChild starts a child process that applies a policy or moves the program, and kills it after some time. If after is 0, it kills the process when
// that is done. It returns the time from the start of the apply or the move to the kill.
func (s *synScene) killChild(text string, after time.Duration) time.Duration {
	s.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestChild$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), childVar+"="+s.Dir+"\n"+text)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = s.protects.Do(cmd.Start)
	}
	if err != nil {
		s.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	until := func(want string) {
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
			s.Logf("child: %s", lines.Text())
		}
		s.Fatalf("the process ends before it is %s", want)
	}
	until("ready")
	start := time.Now()
	if after == 0 {
		until("done")
	} else {
		time.Sleep(after)
	}
	return time.Since(start)
}
