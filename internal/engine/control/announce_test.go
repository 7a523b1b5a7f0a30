// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/engine/control"
)

// announced has the TCP parameters that a client received in a SYN-ACK.
type announced struct {
	options, scales uint8 // tcpi_options; tcpi_snd_wscale and tcpi_rcv_wscale
	mss, window     uint32
}

// announced connects to an address, and reads the announced parameters from the client's kernel.
func (s *site) announced(to string) (a announced) {
	s.Helper()
	c, err := s.client.Dial(s.ctx, "tcp", netip.MustParseAddrPort(to))
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			var info *unix.TCPInfo
			if info, err = unix.GetsockoptTCPInfo(int(fd), syscall.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				scales := *(*uint8)(unsafe.Add(unsafe.Pointer(info), 6)) // unix.TCPInfo has no field for it
				a = announced{info.Options, scales, info.Snd_mss, info.Snd_wnd}
			}
		})
	}
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// TestAnnouncedAsKernel compares the parameters in SYN-ACKs with a SYN cookie with those in the kernel's own SYN-ACKs, under all settings on which
// they depend.
func TestAnnouncedAsKernel(t *testing.T) {
	const none = 0
	for name, settings := range map[string]struct {
		sysctls map[string]string
		mtu     int
	}{
		"as it is, and ECN":        {map[string]string{"tcp_ecn": "1"}, none},
		"small buffers, no SACK":   {map[string]string{"tcp_rmem": "4096 20000 300000", "tcp_sack": "0"}, none},
		"large buffers, small MTU": {map[string]string{"tcp_rmem": "4096 1000000 100000000"}, 1300},
		"no window scaling":        {map[string]string{"tcp_window_scaling": "0"}, none},
		"no timestamps":            {map[string]string{"tcp_timestamps": "0"}, none},
	} {
		t.Run(name, func(t *testing.T) {
			inSite(t, func(s *site) {
				defer s.unload()
				s.takeReplies()
				for sysctl, value := range settings.sysctls {
					if err := s.server.Sysctl("ipv4/"+sysctl, value); err != nil {
						t.Fatal(err)
					}
				}
				if settings.sysctls["tcp_ecn"] != "" {
					if err := s.client.Sysctl("ipv4/tcp_ecn", "1"); err != nil {
						t.Fatal(err)
					}
				}
				if settings.mtu != none {
					s.setMTU(settings.mtu)
				}
				s.listen(80, false)
				to := []string{"10.0.0.2:80", "[fd00::2]:80"}
				s.protect("off")
				want := []announced{s.announced(to[0]), s.announced(to[1])}
				s.protect("always")
				for i := range to {
					got := s.announced(to[i])
					less := want[i].window - got.window
					if got.window = want[i].window; got != want[i] || less > 2*got.mss {
						t.Errorf("%s: %+v, and %d less of window, want %+v", to[i], got, int32(less), want[i])
					}
				}
			})
		})
	}
}

// setMTU sets the MTU of the server's device.
func (s *site) setMTU(mtu int) {
	s.Helper()
	err := s.server.Do(func() error {
		h := &host{T: s.T, Instance: control.Instance{}}
		h.ip(fmt.Sprintf("link set client mtu %d", mtu))
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
}
