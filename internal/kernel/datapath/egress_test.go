// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/compile/image"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// In the other tests of swaps and trials, all policies have a guard, and both hooks are checked. In the tests of this file, only one of two policies
// has a guard.

// unguarded returns the policy with this name, without its guard.
func unguarded(t *testing.T, name string) *datapath.Program {
	t.Helper()
	return loadInside(t, always(slots[name], 1))
}

// leaves checks which policy decides about the packets that leave fw0. "" means that no program is attached.
func leaves(t *testing.T, when, want string) {
	t.Helper()
	if got := decidesLeaving(t, device(t, "fw0")); got != want {
		t.Errorf("%s, %q decides what leaves, want %q", when, got, want)
	}
	if got := hasEntering(t, device(t, "fw0")); got != (want != "") {
		t.Errorf("%s, there is a program for what enters: %v", when, got)
	}
}

// byEachHook runs a test twice: once with TCX, and once as on a kernel without TCX.
func byEachHook(t *testing.T, test func(t *testing.T)) {
	if !testutil.Inside(t) {
		return
	}
	t.Run("tcx", test)
	ip(t, "link del fw0")
	datapath.ForgetTCX()
	t.Run("clsact", test)
}

func TestGuardComesAndGoes(t *testing.T) { byEachHook(t, guardComesAndGoes) }

func guardComesAndGoes(t *testing.T) {
	s := cable(t)
	put(t, s, "old", 0, in("fw0"))
	leaves(t, "with a guard", "old")
	if _, err := s.Install(unguarded(t, "new"), nil, in("fw0"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	leaves(t, "without", "")
	for _, want := range []string{"old", "", "old"} {
		if err := s.Rollback(); err != nil {
			t.Fatal(err)
		}
		leaves(t, "rolled back", want)
	}
	put(t, s, "newer", 0, in("fw1"))
	leaves(t, "another device", "")
	unloaded(t, s)
	if left := testutil.LeftoverPins(); left != nil {
		t.Errorf("left: %v", left)
	}
}

// TestGuardOnTrial runs trials that add or remove a guard.
func TestGuardOnTrial(t *testing.T) { byEachHook(t, guardOnTrial) }

func guardOnTrial(t *testing.T) {
	testutil.Veth(t, "fw0", "fw1")
	for _, test := range []struct {
		name                                string
		old, new                            func(*testing.T, string) *datapath.Program
		during, expired, settled, confirmed string
	}{
		{"comes", unguarded, policy, "new", "pass", "", "new"},
		{"goes", policy, unguarded, "pass", "old", "old", ""},
		{"is not", unguarded, unguarded, "", "", "", ""},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			s := locked(t)
			install := func(p *datapath.Program, trial time.Duration) {
				t.Helper()
				if _, err := s.Install(p, nil, in("fw0"), ending(trial)); err != nil {
					t.Fatal(err)
				}
			}
			done := func(change func() error, when, want string) {
				t.Helper()
				if err := change(); err != nil {
					t.Errorf("%s: %v", when, err)
				}
				leaves(t, when, want)
			}
			next := test.new(t, "new")
			install(test.old(t, "old"), 0)
			install(next, long)
			leaves(t, "on trial", test.during)
			expire(t, s)
			leaves(t, "expired", test.expired)
			done(s.FinishTrial, "settled", test.settled)
			install(next, long)
			done(s.Rollback, "rolled back", test.settled)
			install(next, long)
			done(s.Confirm, "confirmed", test.confirmed)
			unloaded(t, s)
		})
	}
}

// TestGuardUndone makes installs fail at a later device. The egress program of the first device must not change.
func TestGuardUndone(t *testing.T) { byEachHook(t, guardUndone) }

func guardUndone(t *testing.T) {
	s := cable(t)
	fail := func(p *datapath.Program, when, want string) {
		t.Helper()
		if _, err := s.Install(p, nil, in("fw0 none"), time.Time{}); err == nil {
			t.Fatal("installed on a device that is not there")
		}
		testutil.Veth(t, "fw2", "fw3")
		detach, err := testutil.AttachForeign("fw2")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Install(p, nil, in("fw0 fw2"), time.Time{}); err == nil {
			t.Error("installed on a device that another program has")
		}
		leaves(t, when, want)
		if err := detach(); err != nil {
			t.Error(err)
		}
		ip(t, "link del fw2")
	}
	fail(policy(t, "new"), "nothing before", "")
	if _, err := s.Install(unguarded(t, "old"), nil, in("fw0"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	fail(policy(t, "new"), "no guard before", "")
	put(t, s, "old", 0, in("fw0"))
	fail(unguarded(t, "new"), "a guard before, none after", "old")
	fail(policy(t, "new"), "a guard before and after", "old")
	unloaded(t, s)
}

// TestGuardedDeviceGone removes a device and creates another one with the same index. The new device must not be mistaken for the old one.
func TestGuardedDeviceGone(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	ip(t, "link add fw0 index 100 type veth peer name fw1")
	ip(t, "link set fw0 up")
	ip(t, "link set fw1 up")
	s := locked(t)
	put(t, s, "old", 0, in("fw0"))
	ip(t, "link del fw0")
	ip(t, "link add fw0 index 100 type veth peer name fw1")
	ip(t, "link set fw0 up")
	ip(t, "link set fw1 up")
	leaves(t, "made anew", "")
	put(t, s, "new", 0, in("fw0"))
	leaves(t, "applied again", "new")
	put(t, s, "newer", 0, in("fw1"))
	leaves(t, "applied to the other", "")
	unloaded(t, s)
}

// TestInherited loads a program that takes over the clients that the previous program has verified.
func TestInherited(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	s := cable(t)
	if m, err := s.Verified(); m != nil || err != nil {
		t.Errorf("nothing runs and it has clients: %v, %v", m, err)
	}
	if _, err := s.Install(unguarded(t, "old"), nil, in("fw0"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	small, err := s.Verified()
	if err != nil {
		t.Fatal(err)
	}
	first, err := datapath.LoadAfter(guarding(slots["old"]), datapath.Inherited{Verified: small})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	client := [16]byte{15: 1}
	if err := first.Map(image.Verified).Put(client, uint32(5)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(first, nil, in("fw0"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	verified, err := s.Verified()
	if err != nil || verified == nil {
		t.Fatalf("verified clients: %v, %v", verified, err)
	}
	defer verified.Close()
	second, err := datapath.LoadAfter(guarding(slots["new"]), datapath.Inherited{Verified: verified})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	var until uint32
	if err := second.Map(image.Verified).Lookup(client, &until); err != nil || until != 5 {
		t.Errorf("the client is verified until %d, %v, want 5", until, err)
	}
	const late = 1 << 30 // seconds of the clock
	for i := range 9999 {
		if err := second.Map(image.Verified).Put([16]byte{0: 9, 14: byte(i >> 8), 15: byte(i)}, uint32(late)); err != nil {
			t.Fatal(err)
		}
	}
	running, err := s.Running()
	if err != nil || len(running) != 1 {
		t.Fatalf("%d generations run: %v", len(running), err)
	}
	defer datapath.CloseAll(running)
	if n, most, err := running[0].VerifiedClients(); err != nil || n != 9999 || most != 1<<16 {
		t.Errorf("%d of %d clients are verified (error %v), want all but the one whose time is over", n, most, err)
	}
	if n := second.Map(image.Verified).MaxEntries(); n != 1<<16 {
		t.Errorf("%d clients fit", n)
	}
	unloaded(t, s)
}

// TestEgressProgram checks which programs an image has beside the one that decides. Those for XDP also serve the hook of tc, so none is loaded again.
func TestEgressProgram(t *testing.T) {
	testutil.RequireRoot(t)
	if p := load(t, always(70, 1)); p.Egress() != nil {
		t.Error("a policy without a guard has a program for what leaves")
	}
	p := load(t, guarding(70))
	if p.Egress() == nil || p.Egress().Type() != ebpf.SchedCLS {
		t.Errorf("the program for what leaves is %v", p.Egress())
	}
	if at, err := p.At(image.TC); err != nil || len(at.Programs) != 1 {
		t.Errorf("at tc: %v, %v, want one program", at, err)
	}
}
