package datapath_test

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/test/testutil"
)

// atOrder attaches a program of another tool to a hook of fw0 at an anchor, until the end of the test. The program leaves packets to the next one.
func atOrder(t *testing.T, hook ebpf.AttachType, anchor link.Anchor) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "plugin", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: device(t, "fw0").Attrs().Index, Program: prog, Attach: hook, Anchor: anchor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// TestOrder attaches programs of another tool before ours, where packets enter, and after ours, where packets leave, in both modes and on trial. They
// must be reported, and Reorder must give ours their place. No packet may pass meanwhile.
func TestOrder(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	if !datapath.HasTCX() {
		return // without links of TCX nobody can attach before ours
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	s := locked(t)
	defer unloadAll(t, s)
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	apply := func(mode datapath.Mode, ends time.Time) {
		t.Helper()
		if _, err := s.Install(loadInside(t, guarding(70)), []byte("manifest"), []datapath.Attachment{{Device: "fw0", Mode: mode}}, ends); err != nil {
			t.Fatal(err)
		}
	}
	apply(datapath.TC, time.Time{})
	flood := startFlood(t)
	for _, mode := range []datapath.Mode{datapath.TC, datapath.Native} {
		for _, ends := range []time.Time{{}, time.Now().Add(time.Minute)} {
			apply(mode, ends)
			if list, err := s.Misplaced(); err != nil || list != nil {
				t.Errorf("%s: misplaced at first: %v, %v", mode, list, err)
			}
			atOrder(t, ebpf.AttachTCXIngress, link.Head())
			atOrder(t, ebpf.AttachTCXEgress, link.Tail())
			want := func(what string, got []datapath.Misplaced, err error) {
				t.Helper()
				place := func(m datapath.Misplaced) bool {
					return m.Device == "fw0" && slices.Equal(m.Others, []string{"plugin"})
				}
				if err != nil || len(got) != 2 || !place(got[0]) || !place(got[1]) || got[0].Leaving == got[1].Leaving {
					t.Errorf("%s: %s: %v, %v", mode, what, got, err)
				}
			}
			list, err := s.Misplaced()
			want("misplaced", list, err)
			list, err = s.Reorder(func(datapath.Misplaced) bool { return true })
			want("reordered", list, err)
			if list, err := s.Misplaced(); err != nil || list != nil {
				t.Errorf("%s: misplaced afterwards: %v, %v", mode, list, err)
			}
			if !ends.IsZero() {
				if err := s.Rollback(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	flood()
	socket.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if got, _, err := socket.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("a packet of %d bytes has passed", got)
	}
}

// startFlood sends packets to a closed port of fw0 until the returned function is called.
func startFlood(t *testing.T) (stop func()) {
	end, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- testutil.SendFor("fw1", []string{"udp 192.0.2.7:1 > 192.0.2.1:9"}, func(int) bool {
			select {
			case <-end:
				return false
			default:
				return true
			}
		})
	}()
	return func() {
		close(end)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
