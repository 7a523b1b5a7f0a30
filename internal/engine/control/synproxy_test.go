// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/doctor"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/netfilter"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// behind are the addresses of the server behind the router of inRouter.
var behind = []string{"10.0.1.2:80", "[fd01::2]:80"}

// inRouter runs a test in a site whose server is a router. Another host behind the router serves port 80.
func inRouter(t *testing.T, test func(s *site, server *lab.Host)) {
	t.Helper()
	testutil.RequireRoot(t)
	s := &site{T: t, Instance: control.Instance{Dir: ownDir(t)}}
	err := lab.Run(t.Context(), func(ctx context.Context, l *lab.Lab) error {
		s.ctx = ctx
		hosts := map[string]*lab.Host{}
		for _, name := range []string{"client", "router", "server"} {
			h, err := l.Host(name)
			if err != nil {
				return err
			}
			hosts[name] = h
		}
		s.client, s.server = hosts["client"], hosts["router"]
		out, _, err := l.Connect(s.client, s.server, lab.LinkOptions{
			A: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.1/24 fd00::1/64")},
			B: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.2/24 fd00::2/64"), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}, // the address to which testutil.Send sends
		})
		if err != nil {
			return err
		}
		_, in, err := l.Connect(s.server, hosts["server"], lab.LinkOptions{
			A: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.1.1/24 fd01::1/64")},
			B: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.1.2/24 fd01::2/64")},
		})
		if err != nil {
			return err
		}
		for _, r := range []struct {
			h       *lab.Host
			to, via string
			dev     *lab.Device
		}{
			{s.client, "10.0.1.0/24", "10.0.0.2", out}, {s.client, "fd01::/64", "fd00::2", out},
			{hosts["server"], "10.0.0.0/24", "10.0.1.1", in}, {hosts["server"], "fd00::/64", "fd01::1", in},
		} {
			if err := r.h.Route(netip.MustParsePrefix(r.to), netip.MustParseAddr(r.via), r.dev); err != nil {
				return err
			}
		}
		if err := s.server.Router(); err != nil {
			return err
		}
		// A veth without an XDP program is not notified of frames that the other end sends back (drivers/net/veth.c).
		var detach func() error
		if err := s.client.Do(func() (err error) { detach, err = testutil.AttachForeign("router"); return err }); err != nil {
			return err
		}
		defer detach()
		for _, address := range behind {
			listener, err := hosts["server"].Listen(netip.MustParseAddrPort(address))
			if err != nil {
				return err
			}
			testutil.Serve(t, listener, func(c net.Conn) { io.CopyN(c, c, 5) })
		}
		test(s, hosts["server"])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// looseOf returns the setting nf_conntrack_tcp_loose of a host.
func (s *site) looseOf(h *lab.Host) (text string) {
	s.Helper()
	err := h.Do(func() error {
		b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_loose")
		text = strings.TrimSpace(string(b))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return text
}

// outcomes returns the counters of netfilter and XDP whose names begin with web, the name of the service.
func (s *site) outcomes() string {
	s.Helper()
	var out string
	if err := s.server.Do(func() error {
		st, err := s.Status(s.ctx)
		if err != nil {
			return err
		}
		for _, r := range st.Rules {
			if strings.HasPrefix(r.Name, "web") {
				out += fmt.Sprintf("%s=%d ", r.Name, r.Packets)
			}
		}
		return nil
	}); err != nil {
		s.Error(err)
	}
	return out
}

// echoed connects to an address, sends five bytes and checks that they are echoed. No segment may be retransmitted.
func (s *site) echoed(to string) error { return s.echoedWithin(slow, to) }

func (s *site) echoedWithin(wait time.Duration, to string) error {
	ctx, cancel := context.WithTimeout(s.ctx, wait)
	defer cancel()
	c, err := s.client.Dial(ctx, "tcp", netip.MustParseAddrPort(to))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		return err
	}
	text, err := io.ReadAll(c)
	if err == nil && string(text) != "hello" {
		err = fmt.Errorf("got %q", text)
	}
	if n, infoErr := lostOf(c); err == nil && (n > 0 || infoErr != nil) {
		err = fmt.Errorf("%d segments were sent again (%v)", n, infoErr)
	}
	if info, infoErr := tcpInfo(c); infoErr == nil {
		s.again += info.Total_retrans
	}
	return err
}

// TestRouterMode makes real connections to a server behind this host while all SYNs are answered with cookies, in both families and on all targets.
// Meanwhile conntrack must be strict.
func TestRouterMode(t *testing.T) {
	const policy = `services: [{name: web, port: tcp/80, syn: {mode: router, when: always, backends: [10.0.1.2, "fd01::2"]}}]`
	inRouter(t, func(s *site, server *lab.Host) {
		for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables, plan.TargetXDP} {
			if err := s.server.Sysctl("netfilter/nf_conntrack_tcp_loose", "1"); err != nil {
				t.Fatal(err)
			}
			want := "web:synproxy=12 web:invalid=0" // the SYN and the ACK of each connection
			if target == plan.TargetXDP {
				want = "web:synproxy=6 web:invalid=0 web:answered=6 web:limited=0 web:proved=6 web:invalid=0"
			}
			s.routerMode(target, policy, want)
			s.unload()
			if got := s.looseOf(s.server); got != "1" {
				t.Errorf("%s: nf_conntrack_tcp_loose is %s after unload", target, got)
			}
		}
	})
}

// routerMode makes six connections through a policy, and compares the counters with want. If segments were retransmitted, as on a machine that
// pauses, the counters include them. Then routerMode makes the connections again.
func (s *site) routerMode(target plan.Target, policy, want string) {
	s.Helper()
	const tries = 5
	var got string
	var lost error
	for range tries {
		s.again, lost = 0, nil
		s.apply(way{name: string(target), target: target}, policy)
		if got := s.looseOf(s.server); got != "0" {
			s.Errorf("%s: nf_conntrack_tcp_loose is %s", target, got)
		}
		for range 3 {
			for _, to := range behind {
				if err := s.echoed(to); err != nil {
					lost = errors.Join(lost, fmt.Errorf("%s: %w", to, err))
				}
			}
		}
		if got = s.outcomes(); strings.Contains(got, want) && lost == nil {
			return
		}
		if s.again == 0 {
			break
		}
		s.unload()
	}
	s.Errorf("%s: counters %s, want %s; %v", target, got, want, lost)
}

// onRouter runs fn on the router.
func (s *site) onRouter(fn func() error) {
	s.Helper()
	if err := s.server.Do(fn); err != nil {
		s.Fatal(err)
	}
}

// TestRouterModeReturns applies and removes a policy that needs strict conntrack, in every possible way.
func TestRouterModeReturns(t *testing.T) {
	const strict = `services: [{name: web, port: tcp/80, syn: {mode: router, when: always, backends: [10.0.1.2]}}]`
	const plain = `services: [{name: web, port: tcp/80}]`
	inRouter(t, func(s *site, _ *lab.Host) {
		w := way{name: "xdp", target: plan.TargetXDP}
		want := func(when, loose string) {
			t.Helper()
			if got := s.looseOf(s.server); got != loose {
				t.Errorf("%s: nf_conntrack_tcp_loose is %s, want %s", when, got, loose)
			}
		}
		rollback := func() error { _, err := s.Rollback(s.ctx); return err }
		if err := s.server.Sysctl("netfilter/nf_conntrack_tcp_loose", "1"); err != nil {
			t.Fatal(err)
		}
		s.apply(w, plain)
		want("without protection", "1")
		s.apply(w, strict)
		want("with it", "0")
		s.onRouter(rollback)
		want("rolled back", "1")
		s.onRouter(rollback)
		want("and forth", "0")
		s.apply(w, strict)
		want("again", "0")
		s.apply(w, plain)
		want("without it again", "1")
		s.onRouter(func() error {
			p, err := policy.Parse("policy.yaml", []byte("devices: [client]\n"+strict))
			if err == nil {
				_, err = s.Apply(s.ctx, p, control.ApplyOptions{Target: w.target, Confirm: time.Minute})
			}
			return err
		})
		want("on trial", "0")
		s.onRouter(rollback)
		want("given up", "1")
		s.apply(w, strict)
		s.unload()
		want("unloaded", "1")
	})
}

// TestStrictTrialExpires lets the trial of a policy that needs strict conntrack expire, without a daemon. The next command that changes the instance
// must restore the host's setting, and remove the remains of the trial.
func TestStrictTrialExpires(t *testing.T) {
	const strict = `services: [{name: web, port: tcp/80, syn: {mode: router, when: always, backends: [10.0.1.2]}}]`
	inRouter(t, func(s *site, _ *lab.Host) {
		if err := s.server.Sysctl("netfilter/nf_conntrack_tcp_loose", "1"); err != nil {
			t.Fatal(err)
		}
		expired := func(target plan.Target) {
			t.Helper()
			s.onRouter(func() error {
				p, err := policy.Parse("policy.yaml", []byte("devices: [client]\n"+strict))
				if err == nil {
					_, err = s.Apply(s.ctx, p, control.ApplyOptions{Target: target, Confirm: netfilter.MinTrial})
				}
				return err
			})
			if got := s.looseOf(s.server); got != "0" {
				t.Errorf("%s: nf_conntrack_tcp_loose is %s on trial", target, got)
			}
			time.Sleep(netfilter.MinTrial + 100*time.Millisecond)
		}
		left := func(when, loose string, tables int) {
			t.Helper()
			if got := s.looseOf(s.server); got != loose {
				t.Errorf("%s: nf_conntrack_tcp_loose is %s, want %s", when, got, loose)
			}
			s.onRouter(func() error {
				out, err := exec.Command("nft", "list", "tables").Output()
				if got := strings.Count(string(out), "table inet floodwall"); got != tables {
					t.Errorf("%s: %d tables, want %d:\n%s", when, got, tables, out)
				}
				return err
			})
		}
		plain := way{name: "nftables", target: plan.TargetNftables}
		for _, target := range []plan.Target{plan.TargetXDP, plan.TargetNftables} {
			expired(target)
			s.unload()
			left(string(target)+", unloaded", "1", 0)
			expired(target)
			s.apply(plain, `services: [{name: web, port: tcp/80}]`)
			left(string(target)+", another policy applied", "1", 1)
			s.unload()
		}
	})
}

// TestMismatches changes the server after Floodwall has asked for its TCP options.
func TestMismatches(t *testing.T) {
	const policy = `services: [{name: web, port: tcp/80, syn: {mode: router, when: always, backends: [10.0.1.2]}}]`
	inRouter(t, func(s *site, server *lab.Host) {
		s.apply(way{name: "xdp", target: plan.TargetXDP}, policy)
		defer s.unload()
		ask := func() (list []doctor.Mismatch) {
			s.onRouter(func() (err error) { list, err = doctor.Mismatches(s.ctx, s.Instance); return err })
			return list
		}
		if list := ask(); list != nil {
			t.Errorf("nothing has changed, yet %+v", list)
		}
		for name, what := range map[string]string{
			"tcp_sack": "sack is offered, and they lack it", "tcp_timestamps": "timestamps is offered, and they lack it",
			"tcp_window_scaling": "wscale is offered, and they lack it",
		} {
			if err := server.Sysctl("ipv4/"+name, "0"); err != nil {
				t.Fatal(err)
			}
			if list := ask(); len(list) != 1 || len(list[0].Broken) != 1 || list[0].Policy != "policy.yaml" || fmt.Sprint(list[0].Differs) != "["+what+"]" {
				t.Errorf("%s: %+v", name, list)
			}
			if err := server.Sysctl("ipv4/"+name, "1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := server.Sysctl("ipv4/tcp_sack", "0"); err != nil {
			t.Fatal(err)
		}
		s.apply(way{name: "xdp", target: plan.TargetXDP}, policy)
		if list := ask(); list != nil {
			t.Errorf("applied again, yet %+v", list)
		}
	})
}

// TestRouterModeOpens opens one connection before the protection of its service starts, and one while the rate of SYNs is too low for cookies. The
// server itself must have accepted both.
func TestRouterModeOpens(t *testing.T) {
	inRouter(t, func(s *site, _ *lab.Host) {
		w := way{name: "xdp", target: plan.TargetXDP}
		s.apply(w, `services: [{name: web, port: tcp/80, syn: {mode: router, backends: [10.0.1.2, "fd01::2"]}}]`)
		defer s.unload()
		for _, to := range behind {
			if err := s.echoed(to); err != nil {
				t.Errorf("%s: %v", to, err)
			}
		}
		before, err := s.client.Dial(s.ctx, "tcp", netip.MustParseAddrPort(behind[0]))
		if err != nil {
			t.Fatal(err)
		}
		defer before.Close()
		if got := s.outcomes(); !strings.Contains(got, "web:synproxy=0 web:invalid=0 web:answered=0 web:limited=0 web:proved=0 web:invalid=0") {
			t.Errorf("without a flood: %s", got)
		}
		s.apply(w, `services: [{name: web, port: tcp/80, syn: {mode: router, when: always, backends: [10.0.1.2, "fd01::2"]}}]`)
		if err := before.SetDeadline(time.Now().Add(slow)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(before, "hello"); err != nil {
			t.Error(err)
		}
		if text, err := io.ReadAll(before); string(text) != "hello" {
			t.Errorf("the connection from before: %q, %v", text, err)
		}
	})
}

// TestSynproxyReflects sends segments without a connection to SYNPROXY. The nft statement synproxy alone would answer a SYN-ACK.
func TestSynproxyReflects(t *testing.T) {
	inRouter(t, func(s *site, _ *lab.Host) {
		for _, target := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
			s.apply(way{name: string(target), target: target}, `services: [{name: web, port: tcp/80, syn: {mode: router, backends: [10.0.1.2]}}]`)
			if err := s.client.Do(func() error {
				return testutil.SendFor("router", []string{
					"tcp 10.0.0.1:5 > 10.0.1.2:80 SA", "tcp 10.0.0.1:6 > 10.0.1.2:80 R", "tcp 10.0.0.1:7 > 10.0.1.2:80 RA",
				}, func(sent int) bool { return sent < 10 })
			}); err != nil {
				t.Fatal(err)
			}
			var got string
			if !testutil.Eventually(slow, func() bool { got = s.outcomes(); return strings.Contains(got, "web:synproxy=0 web:invalid=30") }) {
				t.Errorf("%s: %s", target, got)
			}
			s.unload()
		}
	})
}

// TestSynproxyChecksums uses a router that does not verify checksums itself. Floodwall must note the effect on IPv6.
func TestSynproxyChecksums(t *testing.T) {
	testutil.RequireTool(t, "ethtool")
	inRouter(t, func(s *site, _ *lab.Host) {
		for _, gro := range []string{"off", "on"} {
			var applied *control.Applied
			s.onRouter(func() error {
				if err := exec.Command("ethtool", "-K", "client", "gro", gro).Run(); err != nil {
					return err
				}
				p, err := policy.Parse("policy.yaml", []byte(
					`{devices: [client], services: [{name: web, port: tcp/80, syn: {mode: router, backends: ["fd01::2"]}}]}`))
				if err == nil {
					applied, err = s.Apply(s.ctx, p, control.ApplyOptions{Target: plan.TargetNftables})
				}
				return err
			})
			noted := strings.Contains(strings.Join(applied.Notes, "\n"), "GRO off")
			wait := slow
			if gro == "off" { // no answer is expected
				wait = 2 * time.Second
			}
			err := s.echoedWithin(wait, behind[1])
			if works := err == nil; noted != (gro == "off") || works != (gro == "on") {
				t.Errorf("GRO %s: noted %t, %v", gro, noted, err)
			}
			s.unload()
		}
	})
}
