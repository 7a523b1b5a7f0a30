// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/test/testutil"
)

// The ports of the agent's sockets. They receive packets from early in the boot on.
const (
	openPort   = 7000
	closedPort = 7001
)

var mac = net.HardwareAddr{2, 0, 0, 0, 2, 0}

// network is the file with which systemd-networkd configures the device. Before that, the device has no address.
const network = `[Match]
Name=eth0
[Network]
Address=192.0.2.1/24
LinkLocalAddressing=no
ConfigureWithoutCarrier=yes
`

// units are the links that `systemctl enable` and `systemctl mask` would make. They enable systemd-networkd, and mask units that the test does not
// need and that would take time.
var units = func() map[string]string {
	links := map[string]string{"multi-user.target.wants/systemd-networkd.service": "/lib/systemd/system/systemd-networkd.service"}
	for _, unit := range []string{
		"firewalld.service", "systemd-networkd-wait-online.service", "e2scrub_reap.service", "e2scrub_all.timer", "apt-daily.timer",
		"apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "getty@tty1.service", "serial-getty@ttyS0.service",
		"systemd-timesyncd.service", "systemd-logind.service", "systemd-udev-settle.service", "systemd-tmpfiles-clean.timer",
		"dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
		"sys-fs-fuse-connections.mount", "proc-sys-fs-binfmt_misc.automount", "modprobe@configfs.service", "modprobe@dm_mod.service",
		"modprobe@efi_pstore.service", "modprobe@fuse.service", "modprobe@loop.service", "kmod-static-nodes.service",
		"systemd-pstore.service", "systemd-random-seed.service", "systemd-sysusers.service", "systemd-update-utmp.service",
		"systemd-update-utmp-runlevel.service", "systemd-user-sessions.service", "systemd-journal-flush.service",
	} {
		links[unit] = "/dev/null"
	}
	return links
}()

// trigger makes udev handle only the boot disk, the network cards and their buses. Otherwise it would handle a thousand other devices.
const trigger = `[Service]
ExecStart=
ExecStart=-udevadm trigger --type=devices --action=add --subsystem-match=pci --subsystem-match=virtio --subsystem-match=block --subsystem-match=net
`

// host is a machine to which the test continuously sends packets.
type host struct {
	*testing.T
	*Machine
	sent atomic.Int64 // number of frames of the stream to the closed port
	stop chan struct{}
}

// newHost makes a host with the files of `make install`. The host has booted once. In the short form systemd runs only from the second boot on.
func newHost(t *testing.T, more func(files string)) *host {
	t.Helper()
	testutil.RequireRoot(t)
	files := t.TempDir()
	install := exec.Command("make", "--no-print-directory", "install", "DESTDIR="+files, "PREFIX=/usr")
	install.Dir = testutil.Top(t)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v: %s", err, out)
	}
	write(t, filepath.Join(files, "etc/systemd/network/10-eth0.network"), network)
	write(t, filepath.Join(files, "etc/systemd/system/systemd-udev-trigger.service.d/few.conf"), trigger)
	for name, target := range units {
		link(t, target, filepath.Join(files, "etc/systemd/system", name))
	}
	if !long { // the first boot of systemd takes longer, and is not tested
		write(t, filepath.Join(files, "etc/machine-id"), "00112233445566778899aabbccddeeff\n")
	}
	if more != nil {
		more(files)
	}
	m := New(t, Spec{
		Kernel: "6.12", Disk: true, Plain: !long, Files: files, Listen: []string{"udp/7000", "udp/7001"},
		Cards: []Card{{Model: "virtio-net-pci", MAC: mac}},
	})
	h := &host{T: t, Machine: m, stop: make(chan struct{})}
	t.Cleanup(func() { close(h.stop) })
	m.Boot()
	if long {
		m.Must("udevadm settle --timeout 240")
	} else {
		m.Must("touch /etc/.updated /var/.updated && modprobe virtio_net && ip addr add 192.0.2.1/24 dev eth0 && ip link set eth0 up")
	}
	go h.stream()
	return h
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// stream sends packets to both ports continuously. It also sends while the machine boots or is off. Such packets wait in the card, or are lost.
func (h *host) stream() {
	open, closed := frame(h, openPort, "stream"), frame(h, closedPort, "stream")
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-every.C:
			if h.Wire(0).Send(open) && h.Wire(0).Send(closed) {
				h.sent.Add(1)
			}
		}
	}
}

// frame builds a frame of the stream to the machine.
func frame(t testing.TB, port int, text string) []byte {
	return frameFrom(t, "198.51.100.2", port, text)
}

// frameFrom builds a frame to the machine.
func frameFrom(t testing.TB, source string, port int, text string) []byte {
	spec, err := packet.Parse(fmt.Sprintf("udp %s:999 > 192.0.2.1:%d payload=%q", source, port, text))
	if err != nil {
		t.Error(err)
	}
	f := spec.Frame()
	copy(f, mac)
	return f
}

// received returns the number of packets of the stream that have reached the socket at a port in this boot.
func (h *host) received(port int) int {
	h.Helper()
	return h.Received()[fmt.Sprintf("udp/%d stream", port)]
}

// served waits until the open port receives another packet. This shows that the network is up and that the policy passes allowed packets.
func (h *host) served() {
	h.Helper()
	before := h.received(openPort)
	for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(200 * time.Millisecond) {
		if h.received(openPort) > before {
			return
		}
	}
	h.Fatalf("nothing is received at the open port: %s", h.Must("floodwall status; ip addr; networkctl; systemctl list-jobs; true"))
}

// closed checks that packets of the stream arrive, but none of them at the closed port in this boot.
func (h *host) closed(when string) {
	h.Helper()
	h.served()
	if n := h.received(closedPort); n > 0 {
		h.Errorf("%s: %d packets that the policy drops were received: %s", when, n, h.Must("journalctl -b -u 'floodwall*' --no-pager | tail -30"))
	}
}

// settled waits until systemd has finished the boot.
func (h *host) settled() {
	h.Helper()
	out, _ := h.Command("systemctl", "is-system-running", "--wait")
	if got := strings.TrimSpace(out); got != "running" {
		failed := h.Must("systemctl --failed --no-pager; true")
		h.Logf("systemd says %s: %s", got, failed)
		if strings.Contains(failed, "floodwall") {
			h.Errorf("a unit of ours failed: %s", h.Must("systemctl status 'floodwall*' --no-pager; true"))
		}
	}
}

// crash powers the machine off and boots it again.
func (h *host) crash() {
	h.Helper()
	h.Kill()
	h.Boot()
}

type status struct {
	Target     string
	Policy     string
	Generation int
	Trial      *struct{ Left float64 }
	Rules      []struct {
		Name    string
		Packets uint64
	}
	Sets []struct {
		Name    string
		Entries uint64
	}
}

func (h *host) status() (s status) {
	h.Helper()
	out := h.Must("floodwall status --json --all 2>/dev/null")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		h.Fatalf("status: %v: %s", err, out)
	}
	return s
}

// explain returns the verdict of the loaded program on a packet, and the reason, as `floodwall explain --live` prints them.
func (h *host) explain(packet string) string {
	h.Helper()
	out, _ := h.Command("floodwall", "explain", "--live", packet)
	return out
}
