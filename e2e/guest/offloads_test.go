// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// cable is a network namespace with a tap device. The machine's card at the tap device has the offloads of virtio: it hands over segments as the
// kernel's TCP in the namespace has joined them.
type cable struct{ host *lab.Host }

// The device in the machine, the addresses at both ends, and the port for bulk.
const (
	offloaded     = "eth1"
	offloadedHere = "10.9.0.2"
	offloadedPort = "5001"
)

var (
	offloadedMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 2} // as in the frames of packet.Parse
	offloadedBulk = netip.MustParseAddrPort("10.9.0.1:" + offloadedPort)
)

func newCable(t *testing.T) *cable {
	t.Helper()
	l, err := lab.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cable{}
	if c.host, err = l.Host("cable"); err != nil {
		t.Fatal(err)
	}
	c.do(t, func() error {
		out, err := exec.Command("sh", "-ec", "ip tuntap add tap0 mode tap; ip addr add "+offloadedHere+"/24 dev tap0; ip link set tap0 up").CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	})
	return c
}

// do runs a function in the namespace.
func (c *cable) do(t *testing.T, fn func() error) {
	t.Helper()
	if err := c.host.Do(fn); err != nil {
		t.Fatal(err)
	}
}

func (c *cable) card() Card { return Card{Model: "virtio-net-pci", MAC: offloadedMAC, Tap: "tap0"} }

// start starts QEMU in the namespace.
func (c *cable) start(qemu *exec.Cmd) error { return c.host.Do(qemu.Start) }

// offloadedPolicy drops the flood. The clients' datagrams and bulk pass.
const offloadedPolicy = "devices: [" + offloaded + "]\ndefault: drop\nchecks: off\nxdp: {when: flooded, start: 300/s, calm: 3s}\n" +
	"services: [{name: open, port: [udp/7000, tcp/" + offloadedPort + "]}]\n"

// flooded has a flood begin and end at a card with offloads. Without a flood the stack must get segments joined as without a firewall, and the card
// must have its offloads. No packet of the flood may pass. The test says what both moves cost.
func (c *cable) flooded(s *scene) {
	m := s.machine
	m.Command("floodwall", "unload")
	m.Must("mkdir -p /var/lib; ip addr add 10.9.0.1/24 dev " + offloaded + "; ip link set " + offloaded + " up")
	m.Begin("sh", "-c", "while nc -l -p "+offloadedPort+" >/dev/null; do :; done")
	features := m.Must("ethtool -k " + offloaded)
	none := c.joined(s)
	if none < 2 {
		s.Fatalf("without a firewall a packet has %.1f segments: the card has no offloads:\n%s", none, features)
	}
	m.Write("/tmp/flooded.yaml", offloadedPolicy)
	m.Must("floodwall apply /tmp/flooded.yaml")
	m.Begin("floodwall", "daemon")
	c.mode(s, "tc")
	asWithout := func(when string) {
		s.Helper()
		best := 0.0
		for i := 0; i < 5 && best < 0.9*none; i++ { // on a busy machine fewer segments wait to be joined
			best = max(best, c.joined(s))
		}
		if best < 0.9*none {
			s.Errorf("%s a packet has %.1f segments, without a firewall %.1f", when, best, none)
		}
	}
	asWithout("at rest")

	flood := c.send(s, "udp 10.9.0.2:1 > 10.9.0.1:7001 payload=\"flood\"", time.Millisecond)
	clients := c.send(s, "udp 10.9.0.2:2 > 10.9.0.1:7000 payload=\"client\"", 5*time.Millisecond)
	c.mode(s, "native")
	s.Logf("in the flood a packet has %.1f segments, without a firewall %.1f", c.joined(s), none)
	for line := range strings.Lines(m.Must("ethtool -k " + offloaded)) {
		if !strings.Contains(features, line) {
			s.Logf("in the flood the card has %s", strings.TrimSpace(line))
		}
	}
	sent := flood()
	c.mode(s, "tc")
	asked := clients()
	asWithout("after the flood")
	if now := m.Must("ethtool -k " + offloaded); now != features {
		s.Errorf("after the flood the card has other offloads:\n%s\nbefore:\n%s", now, features)
	}
	received := m.Received()
	if n := received["udp/7001 flood"]; n > 0 {
		s.Errorf("%d of %d packets of the flood were received", n, sent)
	}
	s.Logf("of %d packets of clients %d were received while the program moved there and back; the flood had %d", asked, received["udp/7000 client"], sent)
	if received["udp/7000 client"] < asked/2 {
		s.Errorf("too few packets of clients were received")
	}
	m.Must("pkill floodwall; floodwall unload")
}

// mode waits for a mode of the device.
func (c *cable) mode(s *scene, want string) {
	s.Helper()
	for began := time.Now(); time.Since(began) < 3*time.Minute; time.Sleep(200 * time.Millisecond) {
		if st := s.status(); len(st.Devices) == 1 && st.Devices[0].Mode == want {
			return
		}
	}
	s.Fatalf("the program does not come to mode %s: %s", want, s.machine.Must("floodwall status; dmesg | tail -5"))
}

// joined sends bulk to the machine. It returns the segments of an average packet that the machine's IP has received.
func (c *cable) joined(s *scene) float64 {
	s.Helper()
	count := func() lab.IPCounts {
		n, err := lab.ParseIP(s.machine.Must("cat /proc/net/snmp /proc/net/netstat"))
		if err != nil {
			s.Fatal(err)
		}
		return n
	}
	var conn net.Conn
	if !testutil.Eventually(time.Minute, func() (is bool) {
		var err error
		conn, err = c.host.Dial(s.Context(), "tcp", offloadedBulk)
		return err == nil
	}) {
		s.Fatalf("no connection for bulk: %s", s.machine.Must("ip addr; ps"))
	}
	defer conn.Close()
	before := count()
	_, err := conn.Write(make([]byte, 8<<20))
	err = errors.Join(err, conn.(*net.TCPConn).CloseWrite())
	if err == nil {
		_, err = io.Copy(io.Discard, conn)
	}
	if err != nil {
		s.Fatal(err)
	}
	after := count()
	return after.Segments(before)
}

// send sends a packet again and again, with a pause in between. stop ends that, and returns the number of packets.
func (c *cable) send(s *scene, packet string, pause time.Duration) (stop func() int) {
	end, done, n := make(chan struct{}), make(chan error, 1), 0
	go func() {
		done <- c.host.Do(func() error {
			return testutil.SendFor("tap0", []string{packet}, func(sent int) bool {
				n = sent
				select {
				case <-end:
					return false
				case <-time.After(pause):
					return true
				}
			})
		})
	}()
	return func() int {
		s.Helper()
		close(end)
		if err := <-done; err != nil {
			s.Fatal(err)
		}
		return n
	}
}
