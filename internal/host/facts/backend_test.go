// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

const (
	server4 = "10.0.0.2:80"
	server6 = "[fd00::2]:80"
)

// served runs a function with a client host and a server host. The server host has a listener in each family.
func served(t *testing.T, fn func(l *lab.Lab, router, server *lab.Host) error) {
	t.Helper()
	testutil.RequireRoot(t)
	err := lab.Run(t.Context(), func(_ context.Context, l *lab.Lab) error {
		router, err := l.Host("router")
		if err != nil {
			return err
		}
		server, err := l.Host("server")
		if err != nil {
			return err
		}
		if _, _, err := l.Connect(router, server, lab.LinkOptions{
			A: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.1/24 fd00::1/64")},
			B: lab.EndOptions{Addrs: lab.ParseAddrs("10.0.0.2/24 fd00::2/64")},
		}); err != nil {
			return err
		}
		for _, addr := range []string{server4, server6} {
			listener, err := server.Listen(netip.MustParseAddrPort(addr))
			if err != nil {
				return err
			}
			defer listener.Close()
			// A new link loses packets until the kernel has noted its carrier, which a busy machine does late.
			if !testutil.Eventually(15*time.Second, func() bool { return reached(t, router, addr) }) {
				t.Fatalf("no connection to %s", addr)
			}
		}
		return fn(l, router, server)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reached reports whether a host can connect to an address.
func reached(t *testing.T, from *lab.Host, to string) bool {
	c, err := from.Dial(t.Context(), "tcp", netip.MustParseAddrPort(to))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// look calls Probe for each address from within a host. Its sockets are made by the calling goroutine, in the host's namespace.
func look(h *lab.Host, addrs ...string) (offers []Offer, err error) {
	err = h.Do(func() error {
		for _, a := range addrs {
			o, err := Probe(context.Background(), netip.MustParseAddrPort(a))
			if err != nil {
				return err
			}
			offers = append(offers, o)
		}
		return nil
	})
	return offers, err
}

// TestProbe probes servers whose kernels have unusual settings.
func TestProbe(t *testing.T) {
	served(t, func(_ *lab.Lab, router, server *lab.Host) error {
		usual := Offer{MSS: 1460, WScale: 7, SACK: true, Timestamps: true}
		set := func(name, value string) {
			t.Helper()
			if err := server.Sysctl("ipv4/"+name, value); err != nil {
				t.Fatal(err)
			}
		}
		check := func(what string, want Offer) {
			t.Helper()
			got, err := look(router, server4, server6)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			in6 := want
			in6.MSS -= 20 // the header of IPv6 is 20 bytes larger
			if diff := cmp.Diff([]Offer{want, in6}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		const small, large = "4096 131072 4194304", "4096 131072 33554432"
		set("tcp_rmem", small)
		check("usual", usual)
		set("tcp_rmem", large)
		wide := usual
		wide.WScale = 10
		check("large buffers", wide)
		set("tcp_rmem", small)
		for name, change := range map[string]func(*Offer){
			"tcp_timestamps":     func(o *Offer) { o.Timestamps = false },
			"tcp_sack":           func(o *Offer) { o.SACK = false },
			"tcp_window_scaling": func(o *Offer) { o.WScale = -1 },
		} {
			set(name, "0")
			without := usual
			change(&without)
			check(name, without)
			set(name, "1")
		}
		if err := router.Sysctl("ipv4/tcp_ecn", "1"); err != nil {
			return err
		}
		ecn := usual
		ecn.ECN = true
		check("ECN", ecn)
		if err := router.Sysctl("ipv4/tcp_ecn", "2"); err != nil {
			return err
		}
		narrow := usual
		narrow.MSS = 900
		if err := server.Do(func() error {
			return run("ip route change 10.0.0.0/24 dev router advmss 900", "ip -6 route add fd00::1 dev router advmss 880")
		}); err != nil {
			return err
		}
		check("advmss", narrow)
		return nil
	})
}

func run(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// TestSurvey combines offers. The result is the smallest value of each option. The MSS is separate for each family.
func TestSurvey(t *testing.T) {
	var s SurveyServers
	first, second := netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.3:80")
	s.add(first, Offer{MSS: 8960, WScale: 9, SACK: true, Timestamps: true, ECN: true})
	s.add(second, Offer{MSS: 1460, WScale: 7, SACK: true, Timestamps: false, ECN: true})
	third := netip.MustParseAddrPort("[fd00::2]:80")
	s.add(third, Offer{MSS: 1220, WScale: 14, SACK: true, Timestamps: true})
	want := SurveyServers{Answered: []netip.AddrPort{first, second, third}, MSS: [2]uint16{1460, 1220}, WScale: 7, SACK: true}
	if diff := cmp.Diff(want, s, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.add(first, Offer{MSS: 536, WScale: -1})
	if s.WScale != -1 || s.SACK || s.MSS[0] != 536 {
		t.Errorf("with one that does nothing: %+v", s)
	}
}

// TestKnown finds servers by the connections in conntrack. Connections to other ports and ended connections must not count.
func TestKnown(t *testing.T) {
	testutil.RequireTool(t, "nft")
	served(t, func(_ *lab.Lab, router, server *lab.Host) error {
		other, err := server.Listen(netip.MustParseAddrPort("10.0.0.2:81"))
		if err != nil {
			return err
		}
		defer other.Close()
		if err := router.Do(func() error {
			return run(`nft 'table inet t { chain c { type filter hook output priority 0; ct state new accept; }; }'`)
		}); err != nil {
			return err
		}
		for _, to := range []string{server4, server6, "10.0.0.2:81"} {
			c, err := router.Dial(t.Context(), "tcp", netip.MustParseAddrPort(to))
			if err != nil {
				return err
			}
			defer c.Close()
		}
		return router.Do(func() error {
			web := func(p uint16) bool { return p == 80 }
			got, err := Known(web, 8)
			if err != nil {
				return err
			}
			want := []netip.AddrPort{netip.MustParseAddrPort(server4), netip.MustParseAddrPort(server6)}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("known %v, want %v", got, want)
			}
			if one, err := Known(web, 1); len(one) != 1 || err != nil {
				t.Errorf("at most one: %v, %v", one, err)
			}
			defer func(was int) { largest = was }(largest)
			largest = 2
			if none, err := Known(web, 8); none != nil || !errors.Is(err, ErrTooMany) {
				t.Errorf("too many: %v, %v", none, err)
			}
			return nil
		})
	})
}

// TestLookSilent checks that a server that refuses connections is listed as silent.
func TestLookSilent(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	runtime.LockOSThread()
	if err := run("ip addr add 10.9.0.1/32 dev lo"); err != nil {
		t.Fatal(err)
	}
	closed := netip.MustParseAddrPort("10.9.0.1:9")
	s := SurveyHost(t.Context(), []netip.AddrPort{closed})
	if s.Answered != nil || !slices.Equal(s.Silent, []netip.AddrPort{closed}) {
		t.Errorf("nobody listens, yet %+v", s)
	}
}
