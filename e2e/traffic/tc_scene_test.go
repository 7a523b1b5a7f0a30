// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// plainScene is a server whose only link is a veth as the kernel makes it, with all offloads. The server filters at tc.
type plainScene struct {
	*testing.T
	control.Instance
	ctx            context.Context
	server, client *lab.Host
	end            *lab.Device // the client's end
	device         string      // the filtered device of the server
}

// The server's addresses in plainScene.
var (
	plain4 = netip.MustParseAddr("10.1.0.2")
	plain6 = netip.MustParseAddr("fd01::2")
)

// inPlainScene runs a test in a plainScene.
func inPlainScene(t *testing.T, test func(*plainScene)) {
	t.Helper()
	testutil.RequireRoot(t)
	s := &plainScene{T: t, Instance: control.Instance{Dir: filepath.Join(testutil.MountBPF(t), "floodwall")}, device: "client"}
	err := lab.Run(t.Context(), func(ctx context.Context, l *lab.Lab) (err error) {
		s.ctx = ctx
		if s.server, err = l.Host("server"); err != nil {
			return err
		}
		if s.client, err = l.Host("client"); err != nil {
			return err
		}
		s.end, _, err = l.Connect(s.client, s.server, lab.LinkOptions{
			A: lab.EndOptions{Untuned: true, Addrs: lab.ParseAddrs("10.1.0.1/24 fd01::1/64")},
			B: lab.EndOptions{Untuned: true, Addrs: lab.ParseAddrs("10.1.0.2/24 fd01::2/64")},
		})
		if err != nil {
			return err
		}
		defer s.server.Do(func() error { return s.Unload(context.WithoutCancel(ctx)) })
		test(s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// filter applies a policy at tc.
func (s *plainScene) filter(text string) {
	s.Helper()
	s.filterIn(datapath.TC, text)
}

// filterIn applies a policy in a mode.
func (s *plainScene) filterIn(mode datapath.Mode, text string) {
	s.Helper()
	err := s.server.Do(func() error {
		p, err := policy.Parse("policy.yaml", []byte("devices: ["+s.device+"]\n"+text))
		if err != nil {
			return err
		}
		applied, err := s.Apply(s.ctx, p, control.ApplyOptions{Target: plan.TargetXDP, Mode: mode})
		if err == nil && applied.Devices[0].Mode != mode {
			err = fmt.Errorf("mode %s", applied.Devices[0].Mode)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// reasons returns the counters of the rules and checks by name.
func (s *plainScene) reasons() map[string]control.RuleStatus {
	s.Helper()
	out := map[string]control.RuleStatus{}
	err := s.server.Do(func() error {
		status, err := s.Status(s.ctx)
		if err != nil {
			return err
		}
		for _, r := range append(status.Rules, status.Checks...) {
			out[r.Name] = r
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// counted returns the counter of a rule or check when it has counted a number of packets. The last packets may wait for a CPU. If they do not come,
// counted returns what was counted.
func (s *plainScene) counted(name string, packets uint64) (r control.RuleStatus) {
	s.Helper()
	testutil.Eventually(patience, func() bool { r = s.reasons()[name]; return r.Packets >= packets })
	return r
}

// on runs a command on a host.
func (s *plainScene) on(h *lab.Host, line string) {
	s.Helper()
	words := strings.Fields(line)
	err := h.Do(func() error {
		out, err := exec.CommandContext(s.ctx, words[0], words[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
}

// receiver opens a UDP socket on the server.
func (s *plainScene) receiver(at netip.AddrPort) (c *net.UDPConn) {
	s.Helper()
	err := s.server.Do(func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// sender opens a UDP socket on the client, connected to an address.
func (s *plainScene) sender(to netip.AddrPort) (c *net.UDPConn) {
	s.Helper()
	err := s.client.Do(func() (err error) {
		c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// stream sends bytes over a TCP connection from the client to the server. It returns the statistics of the sender when all are acknowledged.
func (s *plainScene) stream(to netip.AddrPort, bytes int64) (info *unix.TCPInfo, took time.Duration) {
	s.Helper()
	l, err := s.server.Listen(to)
	if err != nil {
		s.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			c.SetDeadline(time.Now().Add(time.Minute))
			err = checkStream(c, bytes, 1)
		}
		done <- err
	}()
	start := time.Now()
	c, err := s.client.Dial(s.ctx, "tcp", to)
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if err := sendStream(c, bytes, 1); err != nil {
		s.Fatalf("sending: %v", err)
	}
	if err := <-done; err != nil {
		s.Fatalf("receiving: %v", err)
	}
	took = time.Since(start)
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		s.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		if err != nil {
			s.Fatal(err)
		}
		if info.Unacked == 0 && info.Notsent_bytes == 0 || time.Now().After(end) {
			return info, took
		}
	}
}
