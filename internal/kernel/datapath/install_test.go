// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// stateDir is the state directory of tests that run in their own namespaces (testutil.Inside).
const stateDir = datapath.DefaultDir

// locked opens the state, and locks it until the test ends.
func locked(t *testing.T) *datapath.State {
	t.Helper()
	s, err := datapath.OpenState(stateDir, true)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := s.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	return s
}

func on(devices ...string) (to []datapath.Attachment) {
	for _, d := range devices {
		to = append(to, datapath.Attachment{Device: d, Mode: datapath.Native})
	}
	return to
}

func ip(t *testing.T, line string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

// install installs a program that drops all packets and counts them in slot 70.
func install(t *testing.T, s *datapath.State, devices ...string) []*datapath.Device {
	t.Helper()
	installed, err := s.Install(loadInside(t, always(70, 1)), []byte("manifest"), on(devices...), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return installed
}

// runs returns the names of the devices of the running generations, newest generation first.
func runs(t *testing.T, s *datapath.State) (names []string) {
	t.Helper()
	running, err := s.Running()
	if err != nil && !errors.Is(err, datapath.ErrNotLoaded) {
		t.Fatal(err)
	}
	defer datapath.CloseAll(running)
	for _, g := range running {
		for _, d := range g.Devices {
			names = append(names, d.Name)
		}
	}
	return names
}

// refused checks that the text and the hint of an error contain these words.
func refused(t *testing.T, err error, text, hint string) {
	t.Helper()
	var h interface{ Hint() string }
	if !errors.As(err, &h) {
		t.Errorf("%v, want an error with a hint", err)
		return
	}
	if !strings.Contains(err.Error(), text) || !strings.Contains(h.Hint(), hint) {
		t.Errorf("error %q with hint %q\nwant   %q and        %q", err, h.Hint(), text, hint)
	}
}

func pinForeign(t *testing.T, path string) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "foreign", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestOthersPins uses directories that do not belong to Floodwall, or in which other programs also have pins. The pins of other programs must stay.
func TestOthersPins(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	_, err := datapath.OpenState("/sys/fs/bpf", true)
	refused(t, err, "root of a BPF file system", "/sys/fs/bpf/floodwall")
	if err := os.Mkdir("/sys/fs/bpf/theirs", 0o700); err != nil {
		t.Fatal(err)
	}
	pinForeign(t, "/sys/fs/bpf/theirs/map")
	for _, create := range []bool{true, false} {
		_, err = datapath.OpenState("/sys/fs/bpf/theirs", create)
		refused(t, err, "holds map", "--bpffs")
	}
	for name, end := range map[string]func(*datapath.State) error{
		"unload":          (*datapath.State).Unload,
		"remove if empty": (*datapath.State).RemoveIfEmpty,
	} {
		s := locked(t)
		if name == "unload" {
			install(t, s, "fw0")
		}
		pinForeign(t, stateDir+"/other")
		if err := end(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(stateDir); len(left) != 1 || left[0].Name() != "other" {
			t.Errorf("%s leaves %v, want only what is not ours", name, left)
		}
		os.RemoveAll(stateDir)
	}
	if !exists("/sys/fs/bpf/theirs/map") {
		t.Error("the map of another program has gone")
	}
}

// TestNoEthernet uses a device whose packets start with an IP header. XDP cannot read them, tc can.
func TestNoEthernet(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	tun, err := testutil.Tun("tun0")
	if err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	ip(t, "link set tun0 up")
	ip(t, "addr add 192.0.2.1/24 dev tun0")
	s := locked(t)
	for _, mode := range []datapath.Mode{datapath.Native, datapath.Generic} {
		_, err := s.Install(loadInside(t, always(70, 1)), nil, []datapath.Attachment{{Device: "tun0", Mode: mode}}, time.Time{})
		refused(t, err, "no Ethernet header", "--mode auto")
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	defer unloadAll(t, s)
	for slot, verdict := range map[uint32]uint8{71: 0, 70: 1} {
		got, err := s.Install(loadInside(t, always(slot, verdict)), []byte("manifest"), []datapath.Attachment{{Device: "tun0", Mode: datapath.Auto}}, time.Time{})
		if err != nil || len(got) != 1 || got[0].Mode != datapath.TC {
			t.Fatalf("on tun0: %v, %v", got, err)
		}
		by := counts(t, func() {
			if _, err := tun.Write(frame(t, "udp 192.0.2.7:1 > 192.0.2.1:9")[14:]); err != nil {
				t.Fatal(err)
			}
			wait := time.Second / 5
			if verdict == 0 {
				wait = time.Minute
			}
			if passed := testutil.Arrives(t, socket, wait); passed != (verdict == 0) {
				t.Errorf("verdict %d: passed %v", verdict, passed)
			}
		})
		t.Log(by)
	}
	for _, name := range []string{"tun0", "lo"} {
		if err := datapath.Attachable(name); err != nil {
			t.Errorf("device %s: %v", name, err)
		}
	}
}

// TestOtherNamespace opens the state of one network namespace in another.
func TestOtherNamespace(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	install(t, s, "fw0")
	errs := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends here
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		for _, create := range []bool{true, false} {
			_, err := datapath.OpenState(stateDir, create)
			errs <- err
		}
	}()
	for range 2 {
		refused(t, <-errs, "another network namespace", "use another --bpffs")
	}
	if got := runs(t, s); len(got) != 1 {
		t.Errorf("here %v runs", got)
	}
}

// TestPrivateMounts runs without a BPF file system, in a mount namespace that ends with the command.
func TestPrivateMounts(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	if err := unix.Mount("none", "/sys/fs/bpf", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	_, err := datapath.OpenState(stateDir, true)
	refused(t, err, "ends with this command", "nsenter --net=/run/netns/NS")
	if exists(stateDir) {
		t.Error("the directory is there")
	}
}

// TestRenamed renames devices, and finally swaps the names of two.
func TestRenamed(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	install(t, s, "fw0")
	ip(t, "link set fw0 down")
	ip(t, "link set fw0 name wan")
	if got := runs(t, s); len(got) != 1 || got[0] != "wan" {
		t.Errorf("%v runs, want wan", got)
	}
	if d := install(t, s, "wan"); len(d) != 1 || d[0].Generation != 2 {
		t.Errorf("installed %+v", d)
	}
	if !exists(stateDir+"/links/wan") || exists(stateDir+"/links/fw0") {
		t.Error("the link has another name than the device")
	}
	install(t, s, "wan", "fw1")
	ip(t, "link set fw1 down")
	ip(t, "link set wan name x")
	ip(t, "link set fw1 name wan")
	ip(t, "link set x name fw1")
	install(t, s, "fw1")
	if got := runs(t, s); len(got) != 1 || got[0] != "fw1" {
		t.Errorf("%v runs, want fw1", got)
	}
	unloadAll(t, s)
}

// unloadAll unloads, and checks that nothing of Floodwall remains.
func unloadAll(t *testing.T, s *datapath.State) {
	t.Helper()
	if err := s.Unload(); err != nil {
		t.Error(err)
	}
	if left := testutil.LeftoverPins(); left != nil {
		t.Errorf("left: %v", left)
	}
}

// TestCountersStay makes installs fail. Counters must return the counters of the running generation.
func TestCountersStay(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	install(t, s, "fw0")
	if err := testutil.Send("fw1", syn, 1000); err != nil {
		t.Fatal(err)
	}
	large := always(70, 1)
	large.Slots = 5000
	if _, err := s.Install(loadInside(t, large), nil, on("fw0", "none"), time.Time{}); err == nil {
		t.Fatal("installed on a device that does not exist")
	}
	counters, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	defer counters.Close()
	counts, err := datapath.ReadCounters(counters, 71)
	if err != nil || counts[70].Packets < 1000 { // the device also counts neighbour solicitations
		t.Errorf("counters of slot 70: %+v, %v, want 1000 packets", counts[70], err)
	}
	if _, err := s.Install(loadInside(t, large), nil, on("fw0"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	now, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	if now.MaxEntries() < 5000 {
		t.Errorf("the counters are %d, want those of the new generation", now.MaxEntries())
	}
}

// TestRunningDuringInstalls reads without the lock while generations replace each other.
func TestRunningDuringInstalls(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	install(t, s, "fw0")
	p := loadInside(t, always(70, 1))
	done := make(chan error, 1)
	go func() {
		for range 30 {
			if _, err := s.Install(p, nil, on("fw0"), time.Time{}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if err != nil || n == 0 {
				t.Errorf("after %d looks: %v", n, err)
			}
			return
		default:
		}
		running, err := s.Running()
		if err != nil {
			t.Fatalf("look %d: %v", n, err)
		}
		datapath.CloseAll(running)
	}
}

// TestForeign has programs of other tools on the device.
func TestForeign(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	s := locked(t)
	detach, err := testutil.AttachForeign("fw0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Install(loadInside(t, always(70, 1)), nil, on("fw0"), time.Time{})
	refused(t, err, "another XDP program is attached (program id", "bpftool link")
	if err := detach(); err != nil {
		t.Fatal(err)
	}
	other, err := datapath.OpenState("/sys/fs/bpf/other", true)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := other.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	install(t, other, "fw1")
	_, err = s.Install(loadInside(t, always(70, 1)), nil, on("fw1"), time.Time{})
	refused(t, err, "floodwall)", "floodwall --bpffs DIR unload")
}

// TestUndoWithoutPins removes the pins of the old program. This process can open the old program by its ID, so it must keep the program during the
// change. When the second device refuses the new program, the first device must get the old one back.
func TestUndoWithoutPins(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	detach, err := testutil.AttachForeign("fw1")
	if err != nil {
		t.Fatal(err)
	}
	defer detach()
	s := locked(t)
	install(t, s, "fw0")
	if err := os.RemoveAll(filepath.Join(stateDir, "generation-1")); err != nil {
		t.Fatal(err)
	}
	before := programOn(t, "fw0")
	next := loadInside(t, returning(asm.Mov.Imm(asm.R0, 0)))
	if _, err = s.Install(next, nil, on("fw0", "fw1"), time.Time{}); err == nil {
		t.Fatal("a device that refuses is no error")
	}
	if after := programOn(t, "fw0"); after != before || after == 0 {
		t.Errorf("fw0 runs program %d, want %d as before", after, before)
	}
	unloadAll(t, s)
}

// programOn returns the ID of the XDP program of a device, or 0 if there is none.
func programOn(t *testing.T, device string) uint32 {
	t.Helper()
	dev, err := netlink.LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	if x := dev.Attrs().Xdp; x != nil {
		return x.ProgId
	}
	return 0
}

// TestLargeMTU has a driver that refuses the program because of the MTU.
func TestLargeMTU(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1")
	ip(t, "link set fw0 mtu 9000")
	ip(t, "link set fw1 mtu 9000")
	p, err := datapath.LoadLinear(always(70, 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s := locked(t)
	_, err = s.Install(p, nil, on("fw0"), time.Time{})
	refused(t, err, "the MTU is 9000", "ip link set dev fw0 mtu 1500")
	if err := s.RemoveIfEmpty(); err != nil {
		t.Error(err)
	}
	if left := testutil.LeftoverPins(); left != nil {
		t.Errorf("left: %v", left)
	}
}
