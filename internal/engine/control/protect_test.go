// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/manifest"
	"github.com/floodwall/floodwall/internal/model/packet"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// listen makes the server listen at a port, with or without multipath TCP. It echoes the first five bytes of each connection.
func (s *site) listen(port uint16, multipath bool) {
	s.Helper()
	var l net.Listener
	err := s.server.Do(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(multipath)
		l, err = c.Listen(s.ctx, "tcp", fmt.Sprintf("[::]:%d", port))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	testutil.Serve(s.T, l, func(c net.Conn) { io.CopyN(c, c, 5) })
}

// exchange connects to an address, sends five bytes, and checks that they are echoed.
func (s *site) exchange(to string) error {
	s.Helper()
	c, err := s.client.Dial(s.ctx, "tcp", netip.MustParseAddrPort(to))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(slow))
	if _, err := io.WriteString(c, "hello"); err != nil {
		return err
	}
	text, err := io.ReadAll(c)
	if err == nil && string(text) != "hello" {
		err = fmt.Errorf("got %q", text)
	}
	return err
}

// protection returns the protection of the service web as status shows it, and the counts of its outcomes.
func (s *site) protection() (p control.ProtectionStatus, counts map[string]uint64) {
	s.Helper()
	counts = map[string]uint64{}
	err := s.server.Do(func() error {
		status, err := s.Status(s.ctx)
		if err != nil {
			return err
		}
		for _, r := range status.Rules {
			counts[r.Name] = r.Packets
		}
		for _, each := range status.Protections {
			if each.Service == "web" {
				p = each
			}
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return p, counts
}

// protect applies a policy that protects the service web. syn is the value of the service's key syn.
func (s *site) protect(syn string) *control.Applied {
	s.Helper()
	var applied *control.Applied
	err := s.server.Do(func() error {
		p, err := policy.Parse("policy.yaml", []byte(fmt.Sprintf(
			"devices: [client]\ndefault: pass\nservices: [{name: web, port: tcp/80, syn: %s}]", syn)))
		if err == nil {
			applied, err = s.Apply(s.ctx, p, control.ApplyOptions{})
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Log(applied.Notes)
	return applied
}

// TestProtectedConnections makes real clients connect to a service on this host.
func TestProtectedConnections(t *testing.T) {
	inSite(t, func(s *site) {
		defer s.unload()
		s.takeReplies()
		s.listen(80, false)
		s.protect("always")
		if err := s.server.FlushConntrack(); err != nil {
			t.Fatal(err)
		}
		const each = 5
		for range each {
			for _, to := range []string{"10.0.0.2:80", "[fd00::2]:80"} {
				if err := s.exchange(to); err != nil {
					t.Errorf("%s: %v", to, err)
				}
			}
		}
		tracked, err := s.server.Conntrack()
		if err != nil || tracked.Entries != 0 {
			t.Errorf("%d connections are tracked: %v", tracked.Entries, err)
		}
		p, counts := s.protection()
		if p.Method != "host" || !p.Active || p.Refused > 0 || p.MSS != [2]uint16{1460, 1440} {
			t.Errorf("protection: %+v", p)
		}
		if counts["web:answered"] != 2*each || counts["web:proved"] != 2*each || counts["web:invalid"] != 0 {
			t.Errorf("counts: %v", counts)
		}
		if p.Flows.Entries != 2*each {
			t.Errorf("%d connections are remembered, want %d", p.Flows.Entries, 2*each)
		}
	})
}

// TestProtectionRests protects a service without a flood. The kernel must answer SYNs itself, and the service's connections must be remembered.
func TestProtectionRests(t *testing.T) {
	inSite(t, func(s *site) {
		defer s.unload()
		s.listen(80, false)
		if notes := s.protect("protect").Notes; !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "listens on tcp/80") }) {
			t.Errorf("no note on why it is protected as one of this host: %q", notes)
		}
		if err := s.exchange("10.0.0.2:80"); err != nil {
			t.Error(err)
		}
		p, counts := s.protection()
		if p.Active || p.Mode != "host" || counts["web:answered"] != 0 || counts["web:proved"] != 0 || counts["web:syn"] == 0 {
			t.Errorf("protection %+v, counts %v", p, counts)
		}
	})
}

// TestCountersOfOutcomesStay applies a policy again, and then with another service before the protected one. The counters must stay.
func TestCountersOfOutcomesStay(t *testing.T) {
	inSite(t, func(s *site) {
		defer s.unload()
		s.takeReplies()
		s.listen(80, false)
		s.protect("always")
		if err := s.exchange("10.0.0.2:80"); err != nil {
			t.Error(err)
		}
		s.protect("{when: always, mss: 1400, wscale: 3}")
		if err := s.exchange("10.0.0.2:80"); err != nil {
			t.Error(err)
		}
		p, counts := s.protection()
		if counts["web:answered"] != 2 || counts["web:proved"] != 2 {
			t.Errorf("counts %v, want two connections", counts)
		}
		if p.MSS != [2]uint16{1400, 1400} || p.WScale != 3 {
			t.Errorf("announced: %+v", p)
		}
	})
}

// TestMultipathListener listens on a socket to which the kernel passes no connection that a program has verified. Floodwall must choose another
// method and say why, and clients must be able to connect.
func TestMultipathListener(t *testing.T) {
	for cookies, method := range map[string]string{"1": "kernel", "2": "listener"} {
		t.Run(method, func(t *testing.T) {
			inSite(t, func(s *site) {
				defer s.unload()
				s.takeReplies()
				if err := s.server.Sysctl("ipv4/tcp_syncookies", cookies); err != nil {
					t.Fatal(err)
				}
				s.listen(80, true)
				notes := s.protect("always").Notes
				if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "GODEBUG=multipathtcp=0") }) {
					t.Errorf("no note on MPTCP: %q", notes)
				}
				for _, to := range []string{"10.0.0.2:80", "[fd00::2]:80"} {
					if err := s.exchange(to); err != nil {
						t.Errorf("%s: %v", to, err)
					}
				}
				p, counts := s.protection()
				if p.Method != method || method == "listener" && counts["web:proved"] != 2 {
					t.Errorf("method %s, want %s, counts %v", p.Method, method, counts)
				}
			})
		})
	}
}

// TestBoundListener binds a socket to a device other than the policy's, such as a VLAN device. Programs do not find this socket, so the kernel must
// answer SYNs, and Floodwall must say why. A socket on the loopback device has no such effect, because clients cannot reach it.
func TestBoundListener(t *testing.T) {
	for device, method := range map[string]string{"above": "kernel", "client": "host", "lo": "host"} {
		t.Run(device, func(t *testing.T) {
			inSite(t, func(s *site) {
				defer s.unload()
				s.listenAt(device)
				notes := strings.Join(s.protect("{mode: host, when: always}").Notes, "\n")
				if said := strings.Contains(notes, "is bound to device above"); said != (method == "kernel") {
					t.Errorf("notes %q", notes)
				}
				if p, _ := s.protection(); p.Method != method {
					t.Errorf("method %s, want %s", p.Method, method)
				}
			})
		})
	}
}

// listenAt makes a device named above on the server, and makes the server listen at one of its devices.
func (s *site) listenAt(device string) {
	s.Helper()
	err := s.server.Do(func() error {
		if out, err := exec.Command("ip", "link", "add", "above", "type", "veth").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
			failed := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) })
			return errors.Join(failed, err)
		}}
		c.SetMultipathTCP(false)
		l, err := c.Listen(s.ctx, "tcp", ":80")
		if err == nil {
			s.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// TestCookiesOff tests a kernel that accepts no SYN cookies.
func TestCookiesOff(t *testing.T) {
	h := newHost(t)
	if h == nil {
		return
	}
	h.run("sysctl", "-w", "net.ipv4.tcp_syncookies=0")
	for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables, plan.TargetIptables} {
		_, err := h.try("services: [{name: web, port: tcp/80, syn: {mode: host}}]", control.ApplyOptions{Target: target})
		var off *manifest.CookiesOffError
		if !errors.As(err, &off) || off.Service != "web" {
			t.Errorf("%s: error is %v, want that cookies are switched off", target, err)
		}
	}
}

// lostOf returns the number of lost segments of a connection, including its SYN. These are the retransmitted segments, except those that the other
// end reports as duplicates (RFC 2883). Such duplicates occur when a machine pauses.
func lostOf(c net.Conn) (n uint32, err error) {
	testutil.Eventually(10*time.Second, func() bool { // the report of the other end may still be on its way
		var info *unix.TCPInfo
		if info, err = tcpInfo(c); err == nil {
			n = info.Total_retrans - min(info.Total_retrans, info.Dsack_dups)
		}
		return n == 0 || err != nil
	})
	return n, err
}

func tcpInfo(c net.Conn) (info *unix.TCPInfo, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return info, errors.Join(failed, err)
}

// TestConnectionsStay checks that a connection continues across changes between policies with and without protection.
func TestConnectionsStay(t *testing.T) {
	inSite(t, func(s *site) {
		defer s.unload()
		s.takeReplies()
		var l net.Listener
		err := s.server.Do(func() (err error) {
			var c net.ListenConfig
			c.SetMultipathTCP(false)
			l, err = c.Listen(s.ctx, "tcp", ":80")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		testutil.Serve(t, l, func(c net.Conn) { io.Copy(c, c) })
		var open []net.Conn
		for _, syn := range []string{"off", "always", "{when: always, flows: 10}", "protect", "off", "always"} {
			s.protect(syn)
			c, err := s.client.Dial(s.ctx, "tcp", netip.MustParseAddrPort("10.0.0.2:80"))
			if err != nil {
				t.Fatalf("with %s: %v", syn, err)
			}
			defer c.Close()
			for i, c := range append(open, c) {
				c.SetDeadline(time.Now().Add(slow))
				echo := make([]byte, 5)
				io.WriteString(c, "hello")
				if _, err := io.ReadFull(c, echo); err != nil {
					t.Errorf("with %s, connection %d: %v", syn, i, err)
				}
				if n, err := lostOf(c); n > 0 || err != nil {
					t.Errorf("with %s, connection %d: %d segments were lost (%v)", syn, i, n, err)
				}
			}
			open = append(open, c)
		}
		p, counts := s.protection()
		if counts["web:invalid"] != 0 || p.Flows.Entries < len(open) {
			t.Errorf("counts %v, %d of %d connections are remembered", counts, p.Flows.Entries, len(open))
		}
	})
}

// TestProtectionMode protects services for which no program listens, on a host that forwards packets and on one that does not.
func TestProtectionMode(t *testing.T) {
	for forwards, mode := range map[string]string{"0": "host", "1": "router"} {
		t.Run(mode, func(t *testing.T) {
			inSite(t, func(s *site) {
				defer s.unload()
				for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
					if err := s.server.Sysctl(name, forwards); err != nil {
						t.Fatal(err)
					}
				}
				s.listen(81, false) // another port
				s.protect("protect")
				if p, _ := s.protection(); p.Mode != mode {
					t.Errorf("protection %+v, want mode %s", p, mode)
				}
			})
		})
	}
}

// TestExplainProtection explains a packet to a protected service, by a policy and by the loaded program.
func TestExplainProtection(t *testing.T) {
	inSite(t, func(s *site) {
		defer s.unload()
		s.listen(80, false)
		s.protect("always")
		for line, want := range map[string]string{
			"tcp 10.0.0.1:999 > 10.0.0.2:80 S": "web:syn pass web true true", "tcp 10.0.0.1:999 > 10.0.0.3:80 S": "web pass  false false", "udp 10.0.0.1:999 > 10.0.0.2:80": "default pass  false false",
		} {
			spec, err := packet.Parse(line)
			if err != nil {
				t.Fatal(err)
			}
			err = s.server.Do(func() error {
				x, err := s.Explain(s.ctx, spec)
				if got := fmt.Sprint(x.Reason, " ", x.Verdict, " ", x.Protection, " ", x.Always, " ", x.Active != nil && *x.Active); err == nil && got != want {
					t.Errorf("%s: %s, want %s", line, got, want)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
