// SPDX-License-Identifier: Apache-2.0

// This file tests Floodwall with network drivers other than veth. The test boots one machine in QEMU that has a card for each driver. The short form
// tests only the first driver, and the long form (FLOODWALL_LONG=1) tests all of them.

package guest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// driver is a driver with native XDP for which QEMU has a card.
type driver struct {
	name, card string
	index      int // index of the card in the machine
}

var drivers = []driver{
	{"virtio_net", "virtio-net-pci", 0},
	{"vmxnet3", "vmxnet3", 2}, // 1 is offloaded
	{"igb", "igb", 3},
}

func (d driver) device() string { return fmt.Sprint("eth", d.index) }

// host returns the machine's address. peer returns the address of the other end, which the test simulates.
func (d driver) host() string { return fmt.Sprintf("10.0.%d.1", d.index) }
func (d driver) peer() string { return fmt.Sprintf("10.0.%d.2", d.index) }

// tagged returns the addresses of the machine and of the peer in VLAN 6.
func (d driver) tagged() (host, peer string) {
	return fmt.Sprintf("10.6.%d.1", d.index), fmt.Sprintf("10.6.%d.2", d.index)
}

func (d driver) mac() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 1, byte(d.index)} }

// peerMAC is the source address of the frames that packet.Parse makes. It is the Ethernet address of the peers in the machine's neighbour table.
var peerMAC = net.HardwareAddr{2, 0, 0, 0, 0, 9}

// scene is a test of one driver: the machine, and the wire to the driver's card.
type scene struct {
	*testing.T
	machine *Machine
	driver
	wire *Wire
	sent int // number of frames sent so far, which makes each text unique
}

// The UDP ports at which the machine receives. The policies pass only packets to the open port.
const (
	drivertestOpenPort   = 7000
	drivertestClosedPort = 7001
)

func TestDrivers(t *testing.T) {
	testutil.RequireRoot(t)
	files := t.TempDir()
	Build(t, "./cmd/floodwall", filepath.Join(files, "bin/floodwall"))
	spec := Spec{
		Kernel: "6.12", Tools: []string{"ethtool", "ip", "nft"}, Files: files, Modules: []string{"8021q", "tcp_diag"},
		Listen: []string{"udp/7000", "udp/7001", "tcp/80"}, CPUs: testutil.Scaled(1, 2), // igb has one queue for each CPU
	}
	only := os.Getenv("ONLY")
	tested := drivers
	if only == "" && !testutil.Long() {
		tested = drivers[:1] // an emulated machine takes a minute for each driver
	}
	cable := newCable(t)
	spec.Start = cable.start
	for i, d := range tested {
		spec.Cards = append(spec.Cards, Card{Model: d.card, MAC: d.mac()})
		spec.Modules = append(spec.Modules, d.name)
		if i == 0 {
			spec.Cards = append(spec.Cards, cable.card())
		}
	}
	m := Start(t, spec)
	m.Must("sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0")
	for _, d := range tested {
		if only != "" && only != d.name {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			s := &scene{T: t, machine: m, driver: d, wire: m.Wire(d.index)}
			s.up()
			if d == drivers[0] {
				s.conntrack() // before anything loads the module
			}
			for _, test := range []struct {
				name string
				run  func(*scene)
			}{
				{"tags", (*scene).tags},
				{"replies", (*scene).replies},
				{"device", (*scene).changes},
				{"flooded", cable.flooded},
			} {
				if test.name == "flooded" && d != drivers[0] {
					continue
				}
				t.Run(test.name, func(t *testing.T) {
					of := *s
					of.T = t
					test.run(&of)
				})
			}
			m.Command("floodwall", "unload")
		})
	}
}

// up sets up the device and its VLANs 5 and 6. The device and VLAN 6 get an address.
func (s *scene) up() {
	s.Helper()
	d := s.device()
	if got := s.machine.Must("basename $(readlink /sys/class/net/" + d + "/device/driver)"); strings.TrimSpace(got) != s.name && s.name != "virtio_net" {
		s.Fatalf("driver of %s: %s", d, got)
	}
	s.machine.Must(strings.NewReplacer("DEV", d, "HOST", s.host(), "PEER", s.peer(), "MAC", peerMAC.String(), "N", fmt.Sprint(s.index)).Replace(
		`alias ip=/bin/ip # not the one of busybox
		ip addr add HOST/24 dev DEV; ip link set DEV up
		for id in 5 6; do ip link add link DEV name DEV.$id type vlan id $id; ip link set DEV.$id up; done
		ip addr add 10.6.N.1/24 dev DEV.6
		ip neigh replace PEER lladdr MAC dev DEV; ip neigh replace 10.6.N.2 lladdr MAC dev DEV.6`))
	s.ready()
}

// ready waits until frames reach the device.
func (s *scene) ready() {
	s.Helper()
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(100 * time.Millisecond) {
		if text := s.send(drivertestOpenPort); s.arrived(drivertestOpenPort, text) {
			return
		}
	}
	s.Fatalf("no frame comes to %s: %s", s.device(), s.machine.Must("ip -s link; dmesg | tail"))
}

// apply adds the device to a policy and applies it. It returns the output and the exit code.
func (s *scene) apply(policy string, options ...string) (string, int) {
	s.Helper()
	s.machine.Write("/tmp/policy.yaml", "devices: ["+s.device()+"]\n"+policy)
	return s.machine.Command(append([]string{"floodwall", "apply", "/tmp/policy.yaml"}, options...)...)
}

func (s *scene) mustApply(policy string, options ...string) string {
	s.Helper()
	out, code := s.apply(policy, options...)
	if code != 0 {
		s.Fatalf("apply: %s", out)
	}
	return out
}

// send sends a packet with VLAN tags to a port. The payload is a unique text, which send returns.
func (s *scene) send(port int, tags ...tag) (text string) {
	s.Helper()
	s.sent++
	text = fmt.Sprintf("%s-%s-%d", s.name, s.Name(), s.sent)
	s.wire.Send(s.frame(fmt.Sprintf("udp %s:999 > %s:%d payload=%q", s.peer(), s.host(), port, text), tags...))
	return text
}

// arrived reports whether an application has received the text so far.
func (s *scene) arrived(port int, text string) bool {
	return s.machine.Received()[fmt.Sprintf("udp/%d %s", port, text)] > 0
}

// tag is a VLAN tag.
type tag struct {
	tpid uint16
	id   uint16
}

// frame builds a frame to the card.
func (s *scene) frame(description string, tags ...tag) []byte {
	s.Helper()
	spec, err := packet.Parse(description)
	if err != nil {
		s.Fatal(err)
	}
	frame := spec.Frame()
	copy(frame, s.mac())
	copy(frame[6:], peerMAC)
	header := frame[:12:12]
	for _, t := range tags {
		header = append(header, byte(t.tpid>>8), byte(t.tpid), byte(t.id>>8), byte(t.id))
	}
	frame = append(header, frame[12:]...)
	for len(frame) < 60 {
		frame = append(frame, 0)
	}
	return frame
}

// drivertestStatus is the part of the output of `floodwall status --json` that the tests use.
type drivertestStatus struct {
	Target  string
	Devices []struct{ Device, Mode string }
	Rules   []struct {
		Name    string
		Packets uint64
	}
}

func (s *scene) status() (st drivertestStatus) {
	s.Helper()
	out := s.machine.Must("floodwall status --json --all")
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		s.Fatalf("status: %v: %s", err, out)
	}
	return st
}
