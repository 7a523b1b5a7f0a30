package control_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/testutil"
)

// behind is the addresses of the server behind the router of inRouter.
var behind = []string{"10.0.1.2:80", "[fd01::2]:80"}

// inRouter runs a test in a site whose server is a router, with another host behind it that serves on port 80.
func inRouter(t *testing.T, test func(s *site, server *lab.Host)) {
	t.Helper()
	testutil.RequireRoot(t)
	s := &site{T: t, Instance: control.Instance{Dir: mountBPF(t)}}
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
			B: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.2/24 fd00::2/64")},
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
		for _, address := range behind {
			listener, err := hosts["server"].Listen(netip.MustParseAddrPort(address))
			if err != nil {
				return err
			}
			defer listener.Close()
			go func() {
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					go func() { defer c.Close(); io.CopyN(c, c, 5) }()
				}
			}()
		}
		test(s, hosts["server"])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// looseOf reads whether conntrack of a host is strict.
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

// outcomes are the counters of netfilter and XDP whose name begins with that of the service web.
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

// echoed connects and has five octets come back.
func (s *site) echoed(to string) error {
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
	defer cancel()
	c, err := s.client.Dial(ctx, "tcp", netip.MustParseAddrPort(to))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		return err
	}
	text, err := io.ReadAll(c)
	if err == nil && string(text) != "hello" {
		err = fmt.Errorf("got %q", text)
	}
	return err
}

// TestRouterMode has real connections to a server behind this host with all SYNs answered by cookies, in both families and
// on all targets; and conntrack strict for as long.
func TestRouterMode(t *testing.T) {
	const policy = `services: [{name: web, port: tcp/80, syn: {mode: router, when: always, backends: [10.0.1.2, "fd01::2"]}}]`
	inRouter(t, func(s *site, server *lab.Host) {
		for _, target := range []compile.Target{compile.TargetNftables, compile.TargetIptables, compile.TargetXDP} {
			if err := s.server.Sysctl("netfilter/nf_conntrack_tcp_loose", "1"); err != nil {
				t.Fatal(err)
			}
			s.apply(way{name: string(target), target: target}, policy)
			if got := s.looseOf(s.server); got != "0" {
				t.Errorf("%s: nf_conntrack_tcp_loose is %s", target, got)
			}
			for range 3 {
				for _, to := range behind {
					began := time.Now()
					if err := s.echoed(to); err != nil {
						t.Errorf("%s: %s: %v", target, to, err)
					}
					if took := time.Since(began); took > 900*time.Millisecond {
						t.Errorf("%s: %s took %s", target, to, took)
					}
				}
			}
			t.Logf("%s: %s", target, s.outcomes())
			s.unload()
			if got := s.looseOf(s.server); got != "1" {
				t.Errorf("%s: nf_conntrack_tcp_loose is %s after unload", target, got)
			}
		}
	})
}
