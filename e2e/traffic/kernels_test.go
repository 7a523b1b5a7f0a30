// SPDX-License-Identifier: Apache-2.0

//go:build kernels

package traffic

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/kernel/features"
)

// kernelText is the number of bytes that a service sends to each client. It is more than a TCP window.
const kernelText = 1 << 20

// TestKernelHost connects clients to a service on the host that protects it. The protection uses the best method that the kernel supports.
func TestKernelHost(t *testing.T) {
	synInScene(t, "host", 1, 1500, func(s *synScene) {
		s.track()
		s.fetched("")
	})
}

// TestKernelRouter connects clients to a service behind the host that protects it.
func TestKernelRouter(t *testing.T) {
	synInScene(t, "router", 1, 1500, func(s *synScene) { s.fetched("") })
}

// TestKernelReplies makes a server that drops by default open flows, during a flood of forged replies. XDP must recognize replies on these kernels as
// well.
func TestKernelReplies(t *testing.T) {
	if err := features.Egress(); err != nil {
		t.Fatal(err)
	}
	forgeReplies(t, 5000)
}

// TestKernelVLAN connects clients in a VLAN. The VLAN device is on top of the device with the XDP program. The servers listen on all addresses, or
// only on the VLAN device.
func TestKernelVLAN(t *testing.T) {
	for name, device := range map[string]string{"everywhere": "", "bound": "tagged"} {
		t.Run(name, func(t *testing.T) {
			synInScene(t, "host", 1, 1500, func(s *synScene) {
				s.vlanDevices()
				s.fetched(device)
			})
		})
	}
}

// TestKernelVLANOffload makes a device remove VLAN tags before XDP sees the frames. SYN-ACKs from XDP would then leave without a tag. So the program
// answers at tc instead, and apply says why, and how to change it. Where the kernel does not let a program answer for this host, nothing is lost.
// Before SYNPROXY, apply chooses a target without XDP.
func TestKernelVLANOffload(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			synInScene(t, mode, 1, 1500, func(s *synScene) {
				s.vlanDevices()
				s.run(s.protects, "ethtool -K client0 rxvlan on")
				s.run(s.clients[0], "ethtool -K protects txvlan on")
				s.listen80("")
				applied := s.protect(always, "")
				answers := mode == "router" || features.Reqsk() == nil
				if notes := strings.Join(applied.Notes, "\n"); strings.Contains(notes, "ethtool -K client0 rxvlan off") != answers {
					t.Errorf("apply says:\n%s", notes)
				}
				for _, to := range servers {
					if err := s.fetch(to); err != nil {
						t.Errorf("%s: %v", family(to), err)
					}
				}
				s.target = plan.TargetXDP
				if _, err := s.tryProtect(always, "", 0); (err == nil) != (mode == "host") {
					t.Errorf("with --target xdp: %v", err)
				}
			})
		})
	}
}

// vlanDevices makes client and server reach each other only over VLAN devices. It turns off an offload by which a veth carries tags in the packet's
// metadata, where XDP does not see them. The VLAN device of the protecting host has an Ethernet address of its own.
func (s *synScene) vlanDevices() {
	s.Helper()
	s.run(s.clients[0], "ethtool -K protects txvlan off")
	s.run(s.protects, "ethtool -K client0 txvlan off rxvlan off")
	s.ip(s.clients[0], "link add link protects name tagged type vlan id 100", "link set tagged arp on up",
		"addr add 10.1.0.1/24 dev tagged", "addr add fd01::1/64 dev tagged nodad",
		"route replace 10.9.0.2/32 via 10.1.0.2", "-6 route replace fd09::2/128 via fd01::2")
	s.ip(s.protects, "link add link client0 name tagged address 02:00:00:09:09:05 type vlan id 100", "link set tagged arp on up",
		"addr add 10.1.0.2/24 dev tagged", "addr add fd01::2/64 dev tagged nodad")
}

// fetched protects the server, which listens on one device, or on all if device is empty. A client then fetches a text several times from each
// address of the server. The protection must count each connection.
func (s *synScene) fetched(device string) {
	s.Helper()
	method := s.kernelMethod(device)
	s.target = plan.TargetXDP
	s.listen80(device)
	s.Log(s.protect(always, "").Notes)
	const each = 3
	for range each {
		for _, to := range servers {
			if err := s.fetch(to); err != nil {
				s.Errorf("%s: %v", family(to), err)
			}
		}
	}
	p, counts := s.status()
	if want := uint64(each * len(servers)); p.Method != method || method != "kernel" && (counts["answered"] < want || counts["proved"] < want) {
		s.Errorf("method %s, want %s; counts of %d connections: %v", p.Method, method, want, counts)
	}
	if n := s.entries(); s.mode == "host" && n != 0 {
		s.Errorf("%d connections are tracked", n)
	}
}

// kernelMethod returns the best method that the kernel has for a server on a device. It enables the sysctl that this method needs.
func (s *synScene) kernelMethod(device string) string {
	s.Helper()
	if s.mode == "router" {
		return "synproxy"
	}
	if device != "" {
		return "kernel"
	}
	if err := features.Reqsk(); err != nil {
		s.Logf("the listener's cookies are to do: %v", err)
		s.sysctl(s.protects, "ipv4/tcp_syncookies", "2")
		return "listener"
	}
	return "host"
}

// listen80 makes the server send the text to each client that requests it.
func (s *synScene) listen80(device string) {
	s.Helper()
	l := s.listenOn(device)
	s.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.CopyN(io.Discard, c, int64(len("text?"))); err == nil {
					sendStream(c, kernelText, 1)
				}
			}()
		}
	}()
}

func (s *synScene) listenOn(device string) (l net.Listener) {
	s.Helper()
	err := s.server.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if device != "" {
			err = unix.BindToDevice(fd, device)
		}
		err = errors.Join(err, unix.Bind(fd, &unix.SockaddrInet6{Port: 80}), unix.Listen(fd, 64))
		f := os.NewFile(uintptr(fd), "listener")
		defer f.Close()
		if err == nil {
			l, err = net.FileListener(f)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return l
}

// fetch requests the text over a new connection, and checks it.
func (s *synScene) fetch(to netip.AddrPort) error {
	c, err := s.dial(s.clients[0], to)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "text?"); err != nil {
		return err
	}
	if err := checkStream(c, kernelText, 1); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}
