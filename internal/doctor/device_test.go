// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/boot"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
)

// card returns a network card that change may modify. Its driver supports native XDP, and it receives packets from outside.
func card(change func(*device)) *device {
	d := &device{name: "eth0", kind: "device", driver: "mlx5_core", mtu: 1500, facing: true, xdp: xdpBasic | xdpScattered}
	change(d)
	return d
}

func TestDevice(t *testing.T) {
	on, fixed := features.Feature{On: true}, features.Feature{On: true, Fixed: true}
	has := func(name string, f features.Feature) func(*device) {
		return func(d *device) { d.features = map[string]features.Feature{name: f} }
	}
	channels := func(c features.Channels) func(*device) { return func(d *device) { d.channels = &c } }
	for _, tt := range []struct {
		name   string
		change func(*device)
		judge  func(*device) Finding
		want   string
	}{
		{"native", func(*device) {}, (*device).native, "ok xdp-native:"},
		{"a veth", func(d *device) { d.kind, d.driver = "veth", "veth" }, (*device).native,
			"note xdp-native: `--mode tc` costs nothing of it, and with `floodwall daemon` the program is at XDP only in a flood (`xdp: auto`)"},
		{"no XDP", func(d *device) { d.xdp = 0 }, (*device).native,
			"note xdp-native: a device whose driver has XDP; until then mode tc, which `--mode auto` chooses"},
		{"a bridge", func(d *device) { d.xdp, d.kind, d.below = 0, "bridge", []string{"eth1", "eth2"} }, (*device).native,
			"warning xdp-native: filter on the devices below it: `devices: [eth1, eth2]`"},
		{"an old kernel", func(d *device) { d.xdpErr = errors.New("no family") }, (*device).native,
			"note xdp-native: floodwall apply --dry-run --mode native --device eth0 policy.yaml"},
		{"large frames", func(d *device) { d.mtu, d.xdp = 9000, xdpBasic }, (*device).frames, "warning xdp-mtu: ip link set dev eth0 mtu 1500"},
		{"large frames, several buffers", func(d *device) { d.mtu = 9000 }, (*device).frames, "note xdp-mtu: ip link set dev eth0 mtu 1500"},
		{"the largest frame", func(d *device) { d.mtu, d.xdp = 3498, xdpBasic }, (*device).frames, "ok xdp-mtu:"},
		{"LRO", has("rx-lro", on), (*device).refusals, "warning xdp-setup: ethtool -K eth0 lro off"},
		{"LRO off", has("rx-lro", features.Feature{}), (*device).refusals, "ok xdp-setup:"},
		{"GRO of a hypervisor", func(d *device) { has("rx-gro-hw", fixed)(d); d.driver = "virtio_net" }, (*device).refusals,
			"note xdp-setup: have the hypervisor offer VIRTIO_NET_F_CTRL_GUEST_OFFLOADS, or switch its guest_tso4, guest_tso6 and guest_ufo off"},
		{"GRO of the card", has("rx-gro-hw", fixed), (*device).refusals, "ok xdp-setup:"},
		{"ena", func(d *device) { channels(features.Channels{MaxCombined: 8, Combined: 8})(d); d.driver = "ena" }, (*device).refusals,
			"warning xdp-setup: ethtool -L eth0 combined 4"},
		{"few queues", channels(features.Channels{MaxCombined: 16, Combined: 2}), spread(8, false), "warning queues: ethtool -L eth0 combined 8"},
		{"few queues of a veth", func(d *device) { channels(features.Channels{MaxRX: 2, RX: 1})(d); d.kind = "veth" }, spread(8, false),
			"note queues: ethtool -L eth0 rx 2"},
		{"all queues", channels(features.Channels{MaxCombined: 2, Combined: 2}), spread(8, false),
			"note queues: for f in /sys/class/net/eth0/queues/rx-*/rps_cpus; do echo ff > $f; done"},
		{"all queues, steered", channels(features.Channels{MaxCombined: 2, Combined: 2}), spread(8, true), "ok queues:"},
		{"enough queues", channels(features.Channels{MaxRX: 8, RX: 8}), spread(8, false), "ok queues:"},
		{"virtio", channels(features.Channels{MaxCombined: 4, Combined: 2}), func(d *device) Finding { return d.transmitQueues(4) },
			"note xdp-transmit: have the hypervisor give the device 6 queues"},
	} {
		t.Run(tt.name, func(t *testing.T) { same(t, []Finding{tt.judge(card(tt.change))}, tt.want) })
	}
}

func spread(cpus uint32, steering bool) func(*device) Finding {
	return func(d *device) Finding { return d.spread(cpus, steering) }
}

// TestFacing checks that findings are less severe for a device that receives no packets from outside.
func TestFacing(t *testing.T) {
	inner := card(func(d *device) { d.facing = false })
	for from, to := range map[Severity]Severity{Problem: Note, Warning: Note, Note: OK, OK: OK} {
		if f := inner.judged(Finding{Severity: from}); f.Severity != to || f.Device != "eth0" {
			t.Errorf("%s becomes %+v", from, f)
		}
		if f := card(func(*device) {}).judged(Finding{Severity: from}); f.Severity != from {
			t.Errorf("%s of a device that faces strangers becomes %s", from, f.Severity)
		}
	}
}

func TestRing(t *testing.T) {
	own := map[string]uint64{
		"rx_packets": 5, "rx_no_buffer_count": 7, "rx_queue_0_drops": 3, "rx_queue_0_xdp_drops": 1000, "rx_out_of_buffer": 0,
		"tx_dropped": 9, "pps_allowance_exceeded": 2, "rx_xdp_drop": 500,
	}
	c := newCounts(&netlink.LinkStatistics{RxMissedErrors: 7, RxDropped: 11}, own)
	want := map[string]uint64{"rx_no_buffer_count": 7, "rx_queue_0_drops": 3, "rx_out_of_buffer": 0, "pps_allowance_exceeded": 2}
	if diff := cmp.Diff(want, c.ring); diff != "" || c.dropped != 11 {
		t.Errorf("dropped %d\n%s", c.dropped, diff)
	}
	kernels := newCounts(&netlink.LinkStatistics{RxMissedErrors: 7}, nil)
	if kernels.ring["rx_missed_errors"] != 7 {
		t.Errorf("%+v", kernels)
	}
	small := card(func(d *device) { d.rings = &features.Rings{Max: 4096, Size: 256} })
	same(t, []Finding{small.ringDrops(nil, c.ring), small.ringDrops(c.ring, c.ring), small.ringDrops(nil, nil)},
		"problem ring-drops: ethtool -G eth0 rx 4096", "note ring-drops: ethtool -G eth0 rx 4096", "ok ring-drops:")
	large := card(func(*device) {})
	same(t, []Finding{large.ringDrops(nil, c.ring)},
		"problem ring-drops: let more CPUs receive (see queues), and make each packet cheaper (see rules-path, conntrack-services, xdp-native)")
	if f := small.ringDrops(nil, c.ring); !strings.Contains(f.Evidence, "12 in all, 12 while looking") || !strings.Contains(f.Evidence, "256 of 4096") {
		t.Errorf("%+v", f)
	}
}

func TestReversePath(t *testing.T) {
	ways := defaultRoutes("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth1\t00000000\t010200C0\t0003\t0\t0\t5\t00000000\t0\t0\t0\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t9\t00000000\t0\t0\t0\n" +
		"eth2\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
	if diff := cmp.Diff([]string{"eth0", "eth1"}, ways); diff != "" {
		t.Error(diff)
	}
	d := card(func(d *device) { d.name = "eth0.5" })
	const loose = "sysctl -w net/ipv4/conf/eth0.5/rp_filter=2"
	same(t, []Finding{
		d.reversePath(0, 0, ways), d.reversePath(0, 1, ways), d.reversePath(1, 0, ways[:1]), d.reversePath(2, 1, ways),
	}, "note rp-filter: "+loose, "warning rp-filter: "+loose, "ok rp-filter:", "ok rp-filter:")
}

func TestStatus(t *testing.T) {
	s := &control.Status{
		Target: "xdp", Policy: "/etc/floodwall/policy.yaml", Generation: 3,
		Devices: []control.DeviceStatus{{Name: "eth0", Stage: "xdp", Mode: "generic"}, {Name: "eth1", Stage: "xdp", Mode: "native"}},
		Open:    []string{"device eth2 has gone"},
	}
	h := captured(nil)
	const repair = "problem floodwall-open: floodwall repair"
	same(t, h.judgeStatus(s), "ok floodwall:", repair, "warning floodwall-mode: floodwall apply --mode auto policy.yaml", "ok floodwall-mode:")
	dull := card(func(d *device) { d.xdp = 0 })
	h.devices = func() ([]*device, error) { return []*device{dull}, nil }
	same(t, h.judgeStatus(s), "ok floodwall:", repair, "note floodwall-mode: nothing on this host: see xdp-native and xdp-setup", "ok floodwall-mode:")
	h.only = []string{"eth1"}
	same(t, h.judgeStatus(s), "ok floodwall:", repair, "ok floodwall-mode:")
}

// TestNotWhole tests the findings when parts of the policy are missing in netfilter.
func TestNotWhole(t *testing.T) {
	s := &control.Status{Target: "nftables", Policy: "p.yaml", Generation: 2, Open: []string{"netfilter: table inet floodwall2 has gone"},
		Warnings: []string{"set s is full", control.NobodyBanned + " for rule \"r\"", "nobody looks for attacks" + control.WithoutDaemon + ": start it"}}
	h := captured(nil)
	found := h.judgeStatus(s)
	same(t, found, "ok floodwall:", "problem floodwall-open: floodwall repair", "warning floodwall-status: floodwall apply p.yaml",
		"warning floodwall-status: floodwall daemon", "warning floodwall-status: floodwall daemon")
	if !Bad(found[:2]) || !strings.Contains(found[1].Evidence, "floodwall2 has gone") {
		t.Errorf("%+v", found[1])
	}
	h.hasDaemonUnit = func() bool { return true }
	start := "warning floodwall-status: systemctl start " + boot.DaemonUnit
	same(t, h.judgeStatus(s)[3:], start, start)
}

func TestTrial(t *testing.T) {
	running, first := &datapath.Trial{New: 4, Old: 3, Deadline: 1 << 62}, &datapath.Trial{New: 1, Deadline: 1}
	same(t, []Finding{judgeTrial(running), judgeTrial(first)}, "warning floodwall-trial: floodwall confirm", "warning floodwall-trial: floodwall rollback")
	if f := judgeTrial(first); f.Cost != "nothing is filtered, as before it" || !strings.Contains(f.Evidence, "generation 1 was not confirmed") {
		t.Errorf("%+v", f)
	}
	gone := fmt.Errorf("%w: what was filtered has gone (eth0)", datapath.ErrNotLoaded)
	same(t, []Finding{notLoaded(datapath.ErrNotLoaded, "/d"), notLoaded(gone, "/d")},
		"note floodwall: floodwall apply POLICY; floodwall init POLICY writes a first one", "problem floodwall: floodwall repair")
	same(t, []Finding{broken(errors.New("generation 3: no table"), "/d")}, "problem floodwall: floodwall apply policy.yaml")
}

// TestAnswerRules tests policies with rules that pass replies to the host's own connections. Some policies have `replies: drop`, others do not.
func TestAnswerRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string][]string{
		"replies: drop\nrules: [{name: answers, proto: tcp, sport: 443, then: pass}]": {"note floodwall-replies: replies: pass"},
		"replies: drop\nrules: [{name: answers, state: established, then: pass}]":     {"note floodwall-replies: replies: pass"},
		"rules: [{name: answers, proto: tcp, sport: 443, then: pass}]":                {"note floodwall-replies: replies: pass"},
		"rules: [{name: theirs, from: 192.0.2.1, sport: udp/53, then: pass}]":         nil,
	} {
		if err := os.WriteFile(file, []byte("devices: [eth0]\ndefault: drop\nservices: [{name: ssh, port: tcp/22}]\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		same(t, answerRules(file), want...)
	}
	same(t, answerRules(file+".gone"))
}

// TestUnprotected tests policies with UDP services, with and without protection from floods.
func TestUnprotected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for services, want := range map[string][]string{
		"{name: game, port: udp/7000}":                        {"note floodwall-udp: udp: protect"},
		"{name: web, port: [tcp/443, udp/443]}":               {"note floodwall-udp: udp: {protect: quic}"},
		"{name: vpn, port: udp/51820}":                        {"note floodwall-udp: udp: protect"}, // no socket listens there, so the service may be AmneziaWG
		"{name: bedrock, port: udp/19132}":                    {"note floodwall-udp: udp: {protect: raknet}"},
		"{name: bedrock, port: udp/19133}":                    {"note floodwall-udp: udp: {protect: raknet}"},
		"{name: dns, port: udp/53}":                           {"note floodwall-udp: guard: dns"},
		"{name: dns, port: [udp/53, tcp/53], guard: dns}":     nil,
		"{name: game, port: udp/7000, udp: protect}":          nil,
		"{name: game, port: udp/7000, from: 198.51.100.0/24}": nil,
		"{name: time, port: udp/123}":                         nil,
		"{name: web, port: tcp/443}":                          nil,
	} {
		if err := os.WriteFile(file, []byte("devices: [eth0]\nservices: ["+services+"]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		same(t, unprotected(file), want...)
	}
	same(t, unprotected(file+".gone"))
}
