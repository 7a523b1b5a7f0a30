// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receive counts the samples of packets to 192.0.2.1 by their length. It stops after n samples, or when no sample arrives for the time wait.
func receive(t *testing.T, r *sample.DeviceReader, n int, wait time.Duration) map[int]int {
	t.Helper()
	got := map[int]int{}
	for n > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		s, err := r.Read(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return got
		}
		check(t, err)
		if len(s.Frame) != min(s.Length, sample.FrameBytes) || s.Device != "fw0" {
			t.Errorf("%d bytes of %d, of device %s", len(s.Frame), s.Length, s.Device)
		}
		if p := packet.Decode(s.Frame); p.Kind == packet.IP && p.Dst.String() == "192.0.2.1" {
			got[s.Length]++ // other packets are neighbor discovery of the device
			n--
		}
	}
	return got
}

// TestDeviceReader samples all packets of a device on each target. Packets that XDP drops must be missing; netfilter decides after the sampling.
func TestDeviceReader(t *testing.T) {
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		t.Run(string(target), func(t *testing.T) {
			if !testutil.Inside(t) {
				return
			}
			testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
			p, err := policy.Parse("policy.yaml", []byte("devices: [fw0]\nrules:\n  - {name: no-udp, proto: udp, then: drop}\n"))
			check(t, err)
			in := control.Instance{Dir: datapath.DefaultDir}
			_, err = in.Apply(t.Context(), p, control.ApplyOptions{Target: target})
			check(t, err)
			defer func() { check(t, in.Unload(context.Background())) }()
			r, err := sample.OpenDevices([]string{"fw0"}, 1)
			check(t, err)
			check(t, testutil.Send("fw1", "udp 198.51.100.8:1234 > 192.0.2.1:53 len=600", 30))
			check(t, testutil.Send("fw1", "tcp 198.51.100.7:1234 > 192.0.2.1:80 S", 20))
			want := map[int]int{58: 20, 614: 30}
			if target == plan.TargetXDP {
				want = map[int]int{58: 20, 614: 0}
			}
			got := receive(t, r, want[58]+want[614], time.Minute)
			if got[58] != want[58] || got[614] != want[614] {
				t.Errorf("samples by length: %v, want %v", got, want)
			}
			lost, err := r.Lost()
			check(t, errors.Join(err, r.Close()))
			if lost != 0 {
				t.Errorf("%d samples lost", lost)
			}
		})
	}
}

// TestShare samples one in 20 packets, and then all packets. The number of samples must be within six standard deviations. Samples that are not read
// must be counted as lost.
func TestShare(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	r, err := sample.OpenDevices([]string{"fw0"}, 20)
	check(t, err)
	defer func() { check(t, r.Close()) }()
	const quiet = 3 * time.Second // then no packet waits for a CPU any more
	const n, line = 4000, "udp 198.51.100.8:1234 > 192.0.2.1:53 len=600"
	check(t, testutil.Send("fw1", line, n))
	got := float64(receive(t, r, n, quiet)[614])
	if sigma := math.Sqrt(n / 20 * 0.95); math.Abs(got-n/20) > 6*sigma {
		t.Errorf("%.0f of %d packets, want %d ± %.0f", got, n, n/20, 6*sigma)
	}
	check(t, r.SetShare(1))
	check(t, testutil.Send("fw1", line, 100))
	if got := receive(t, r, 100, time.Minute); r.OneIn() != 1 || got[614] != 100 {
		t.Errorf("%v, want 100 packets", got)
	}
	check(t, testutil.Send("fw1", line, 100))
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := r.Read(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("reading after the end, with samples that wait: %v", err)
	}
	receive(t, r, 100, time.Minute)
	sent := 0
	for lost := uint64(0); lost == 0 && sent < 100_000; {
		check(t, testutil.Send("fw1", line, n))
		sent += n
		lost, err = r.Lost()
		check(t, err)
	}
	read := receive(t, r, sent, quiet)[614]
	lost, err := r.Lost()
	check(t, err)
	if read < 1000 || read+int(lost) < sent || read+int(lost) > sent+20 { // the device itself sends a few packets more
		t.Errorf("%d packets: %d samples read, %d lost", sent, read, lost)
	}
}

// TestRefused opens a device that does not exist.
func TestRefused(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	testutil.Veth(t, "fw0", "fw1", "192.0.2.1/24")
	if _, err := sample.OpenDevices([]string{"fw0", "fw9"}, 1); err == nil || !strings.Contains(err.Error(), "device fw9") {
		t.Errorf("a device that is not there: %v", err)
	}
}
