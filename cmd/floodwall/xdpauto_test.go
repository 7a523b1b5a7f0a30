// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/testutil"
)

// home is where the program of a device runs, and what status says about that.
type home struct {
	mode    string
	xdp     string
	byFlood bool
	why     string // a part of it
}

// wantHomes waits until status has these places.
func wantHomes(t *testing.T, when string, want map[string]home) {
	t.Helper()
	var s control.Status
	is := func() bool {
		s = control.Status{}
		if err := json.Unmarshal([]byte(mustFloodwall(t, "status", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		for _, d := range s.Devices {
			w := want[d.Name]
			if d.Mode != w.mode || string(d.XDP) != w.xdp || d.ByFlood != w.byFlood || !strings.Contains(d.Why, w.why) || w.why == "" {
				return false
			}
		}
		return len(s.Devices) == len(want)
	}
	if !testutil.Eventually(time.Minute, is) {
		t.Errorf("%s: the devices are %+v, want %+v", when, s.Devices, want)
	}
}

// TestXDPAuto applies a policy to veths that have different settings, and starts and ends daemons. Without a setting, a veth is at tc while the daemon runs
// unless its other end makes no large segments. Without the daemon it is at XDP.
func TestXDPAuto(t *testing.T) {
	if !inside(t) || features.TCX() != nil {
		return
	}
	for _, pair := range [][2]string{{"fw2", "fw3"}, {"fw4", "fw5"}, {"fw6", "fw7"}} {
		testutil.Veth(t, pair[0], pair[1])
	}
	sh(t, "ethtool -K fw3 tso off gso off")
	file, state := filepath.Join(t.TempDir(), "policy.yaml"), t.TempDir()
	writeFile(t, file, "devices: [fw0, fw2, {name: fw4, xdp: never}, {name: fw6, xdp: always}]\nrules: [{proto: udp, port: 9, then: drop}]\n")
	apply := func(args ...string) string {
		t.Helper()
		return mustFloodwall(t, append([]string{"apply", file, "--state", state}, args...)...)
	}
	const costs, noDaemon = "the other end of veth fw0 makes no large segments", ", but `floodwall daemon` does not run"
	without := map[string]home{
		"fw0": {"native", "always", false, costs + noDaemon},
		"fw2": {"native", "always", false, "XDP costs the device nothing"},
		"fw4": {"tc", "never", false, "the policy says `xdp: never`"},
		"fw6": {"native", "always", false, "the policy says `xdp: always`"},
	}
	with := maps.Clone(without)
	with["fw0"] = home{"tc", "flooded", true, costs}
	if out := apply(); !strings.Contains(out, "on veth fw0 costs") || strings.Contains(out, "has no effect") {
		t.Errorf("apply without the daemon does not say once what native mode costs:\n%s", out)
	}
	wantHomes(t, "no daemon", without)
	apply()
	wantHomes(t, "applied again", without)
	daemon := startDaemon(t, "--state", state)
	wantHomes(t, "a daemon", with)
	if out := apply(); strings.Contains(out, "on veth fw0 costs") {
		t.Errorf("apply beside the daemon says that native mode costs:\n%s", out)
	}
	mustFloodwall(t, "repair", "--state", state)
	wantHomes(t, "applied and repaired beside the daemon", with)
	daemon.daemon.Process.Signal(syscall.SIGTERM)
	daemon.daemon.Wait()
	wantHomes(t, "the daemon has ended", without)
	daemon = startDaemon(t, "--state", state)
	wantHomes(t, "the next daemon", with)
	daemon.kill()
	killed := maps.Clone(without)
	killed["fw0"] = home{"tc", "always", false, costs + noDaemon}
	wantHomes(t, "the daemon was killed", killed)
	const alone = "device fw0 is at tc, and `floodwall daemon` does not run"
	if out := mustFloodwall(t, "status"); !strings.Contains(out, alone) {
		t.Errorf("status does not say %q:\n%s", alone, out)
	}
	mustFloodwall(t, "repair", "--state", state)
	wantHomes(t, "repaired without a daemon", without)
	if out := mustFloodwall(t, "status"); strings.Contains(out, alone) {
		t.Errorf("status still says %q:\n%s", alone, out)
	}
	apply("--mode", "tc")
	for name := range with {
		with[name] = home{"tc", with[name].xdp, false, "mode tc was asked for"}
	}
	wantHomes(t, "mode tc", with)
}

// TestStaysWhereCarrierIsLost lets the carrier of one of two devices come and go all the time, while floods move the programs of both. When a move has met
// a loss of the carrier, the program must stay at XDP once it is there, and status must say why, until an apply with --mode auto.
func TestStaysWhereCarrierIsLost(t *testing.T) {
	if !inside(t) || features.TCX() != nil {
		return
	}
	testutil.Veth(t, "fw2", "fw3")
	file, state := filepath.Join(t.TempDir(), "policy.yaml"), t.TempDir()
	writeFile(t, file, "devices: [fw0, fw2]\nxdp: {when: flooded, start: 20/s, calm: 1s}\nrules: [{proto: udp, port: 9, then: drop}]\n")
	mustFloodwall(t, "apply", file, "--state", state)
	daemon := startDaemon(t, "--state", state)
	peer, err := netlink.LinkByName("fw3")
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	var toggling sync.WaitGroup
	stopToggling := sync.OnceFunc(func() {
		close(end)
		toggling.Wait()
	})
	defer stopToggling()
	toggling.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			time.Sleep(10 * time.Millisecond)
			if err := errors.Join(netlink.LinkSetDown(peer), netlink.LinkSetUp(peer)); err != nil {
				t.Error(err)
			}
		}
	})
	const lost = "the device lost its carrier"
	stays := func() (where string) {
		var s control.Status
		if err := json.Unmarshal([]byte(mustFloodwall(t, "status", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		for _, d := range s.Devices {
			if d.Name == "fw2" && strings.Contains(d.Why, lost) {
				where = d.Mode
			}
		}
		return where
	}
	both := func(mode string) func() bool {
		return func() bool { return stays() != "" || strings.Count(mustFloodwall(t, "status"), " "+mode+" for ") == 2 }
	}
	for i := 0; i < 20 && stays() == ""; i++ {
		if !testutil.Eventually(time.Minute, both("tc")) {
			t.Fatalf("no mode tc: %s\n%s", mustFloodwall(t, "status"), daemon.said)
		}
		stop := testutil.Flood(t, "fw1", "udp 192.0.2.7:1 > 192.0.2.1:9", 100*time.Microsecond)
		waitFor(t, "native mode", both("native"))
		stop()
	}
	where := stays()
	if where == "" {
		t.Fatal("no move met a loss of the carrier")
	}
	if where != "native" {
		t.Errorf("the device stays in mode %s", where)
	}
	if said := daemon.said.String(); !strings.Contains(said, "and it stays so: "+lost) {
		t.Errorf("the daemon does not say that the device stays:\n%s", said)
	}
	stopToggling() // the end of the flood may move the program at any time, and a move may meet another loss
	mustFloodwall(t, "apply", file, "--state", state, "--mode", "auto")
	if stays() != "" {
		t.Error("mode auto was asked for, and the device still stays")
	}
}

// TestLeavesFlooded replaces a policy whose program is at tc because there is no flood by one that says `xdp: always`: after a trial, and by a rollback.
// While the daemon runs, the program must come back to XDP.
func TestLeavesFlooded(t *testing.T) {
	if !inside(t) || features.TCX() != nil {
		return
	}
	dir, state := t.TempDir(), t.TempDir()
	apply := func(xdp string, args ...string) {
		t.Helper()
		file := filepath.Join(dir, xdp+".yaml")
		writeFile(t, file, "devices: [fw0]\nxdp: "+xdp+"\nrules: [{proto: udp, port: 9, then: drop}]\n")
		mustFloodwall(t, append([]string{"apply", file, "--state", state}, args...)...)
	}
	always := map[string]home{"fw0": {"native", "always", false, "the policy says `xdp: always`"}}
	flooded := map[string]home{"fw0": {"tc", "flooded", true, "the policy says `xdp: flooded`"}}
	apply("flooded")
	startDaemon(t, "--state", state)
	wantHomes(t, "flooded", flooded)
	apply("always", "--confirm", "5m")
	if out := mustFloodwall(t, "status"); !strings.Contains(out, " tc") {
		t.Errorf("a trial changes the mode:\n%s", out)
	}
	mustFloodwall(t, "confirm", "--state", state)
	wantHomes(t, "always, confirmed", always)
	apply("flooded")
	wantHomes(t, "flooded again", flooded)
	mustFloodwall(t, "rollback", "--state", state)
	wantHomes(t, "rolled back to always", always)
}

// TestRefusesXDP has a flood begin at a device whose driver refuses XDP, as the other end of the veth sends by more queues than the device receives by. The daemon must say so once, and
// status why, until the driver takes XDP. During a trial the end of the daemon moves nothing, and the daemon must say that.
func TestRefusesXDP(t *testing.T) {
	if !inside(t) || features.TCX() != nil {
		return
	}
	sh(t, "ip link add fw2 numrxqueues 1 numtxqueues 1 type veth peer name fw3 numtxqueues 2 numrxqueues 1; ethtool -L fw3 tx 1; ip link set fw2 up; ip link set fw3 up")
	file, state := filepath.Join(t.TempDir(), "policy.yaml"), t.TempDir()
	writeFile(t, file, "devices: [fw2]\nxdp: {when: flooded, start: 20/s, calm: 2s}\nrules: [{proto: udp, port: 9, then: drop}]\n")
	mustFloodwall(t, "apply", file, "--state", state)
	daemon := startDaemon(t, "--state", state)
	calm := map[string]home{"fw2": {"tc", "flooded", true, "the policy says `xdp: flooded`"}}
	wantHomes(t, "no flood", calm)
	sh(t, "ethtool -L fw3 tx 2")
	stop := testutil.Flood(t, "fw3", "udp 192.0.2.7:1 > 192.0.2.1:9", 100*time.Microsecond)
	wantHomes(t, "the driver refuses XDP", map[string]home{"fw2": {"tc", "flooded", false, "the driver refuses XDP"}})
	sh(t, "ethtool -L fw3 tx 1")
	wantHomes(t, "the driver takes XDP", map[string]home{"fw2": {"native", "flooded", true, "the policy says `xdp: flooded`"}})
	stop()
	wantHomes(t, "after the flood", calm)
	if n := strings.Count(daemon.said.String(), "device fw2 refuses the mode"); n != 1 {
		t.Errorf("the daemon says %d times that the driver refuses XDP:\n%s", n, daemon.said)
	}
	mustFloodwall(t, "apply", file, "--state", state, "--force", "--confirm", "5m")
	daemon.daemon.Process.Signal(syscall.SIGTERM)
	daemon.daemon.Wait()
	if said := daemon.said.String(); !strings.Contains(said, "a device stays at tc") || !strings.Contains(said, "on trial") {
		t.Errorf("the daemon ends during a trial, and does not say where the program stays:\n%s", said)
	}
}

// TestFloodedByAltname names a device by an alternative name. Its own setting must hold all the same.
func TestFloodedByAltname(t *testing.T) {
	if !inside(t) || features.TCX() != nil {
		return
	}
	sh(t, "ip link property add dev fw0 altname uplink0")
	file, state := filepath.Join(t.TempDir(), "policy.yaml"), t.TempDir()
	writeFile(t, file, "devices: [{name: uplink0, xdp: flooded}]\nrules: [{proto: udp, port: 9, then: drop}]\n")
	mustFloodwall(t, "apply", file, "--state", state)
	startDaemon(t, "--state", state)
	calm := map[string]home{"fw0": {"tc", "flooded", true, "the policy says `xdp: flooded`"}}
	wantHomes(t, "a daemon", calm)
	mustFloodwall(t, "apply", file, "--state", state, "--force")
	wantHomes(t, "applied again", calm)
}
