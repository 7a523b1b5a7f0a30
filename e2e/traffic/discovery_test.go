// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/lab"
)

// TestNeighborDiscovery makes the server discover its neighbor, be discovered by the neighbor, and take an address from a router advertisement. The
// policy has `default: drop`, and the messages come from real kernels. An advertisement that RFC 4861 or RFC 6980 forbids must not lead to an
// address.
func TestNeighborDiscovery(t *testing.T) {
	inScene(t, func(s *scene) {
		for key, value := range map[string]string{"accept_ra": "2", "autoconf": "1", "addr_gen_mode": "0", "use_tempaddr": "0"} {
			if err := s.server.Sysctl("ipv6/conf/attacker/"+key, value); err != nil {
				t.Fatal(err)
			}
		}
		for i, target := range targets {
			s.apply(target, essentialPolicy)
			s.forgetNeighbors()
			before := s.stack()
			s.meet(netip.MustParseAddrPort("[fd00::1]:7"))
			if came := s.stack().less(before).icmpv6; came == 0 {
				t.Errorf("%s: no message of neighbor discovery came to the stack", target)
			}
			forged := netip.MustParsePrefix(fmt.Sprintf("fd66:0:0:%x::/64", i))
			s.send(1, s.frames(advertisement(forged, " code=1")))
			s.send(1, s.frames(advertisement(forged, " frag=first")))
			honest := netip.MustParsePrefix(fmt.Sprintf("fd77:0:0:%x::/64", i))
			for end := time.Now().Add(time.Minute); !s.hasAddressIn(honest); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: the server has no address in the advertised prefix %v", target, honest)
				}
				s.send(1, s.frames(advertisement(honest, "")))
			}
			if s.hasAddressIn(forged) {
				t.Errorf("%s: the server has an address in %v, which a forbidden message has advertised", target, forged)
			}
		}
	})
}

// advertisement returns a line for a router advertisement with a prefix (RFC 4861, 4.2 and 4.6.2).
func advertisement(prefix netip.Prefix, how string) string {
	body := make([]byte, 8+32)
	option := body[8:]
	option[0], option[1], option[2], option[3] = 3, 4, byte(prefix.Bits()), 0xc0
	binary.BigEndian.PutUint32(option[4:], 3600)
	binary.BigEndian.PutUint32(option[8:], 3600)
	address := prefix.Addr().As16()
	copy(option[16:], address[:])
	return fmt.Sprintf("icmpv6 fe80::99 > ff02::1 type=134%s payload=0x%x", how, body)
}

// forgetNeighbors enables neighbor discovery at both ends of the attacker's link. It also deletes each end's neighbor entry for the other.
func (s *scene) forgetNeighbors() {
	s.Helper()
	for device, h := range map[string]*lab.Host{"attacker": s.server, "server": s.attacker} {
		err := h.Do(func() error {
			dev, err := netlink.LinkByName(device)
			if err == nil {
				err = netlink.LinkSetARPOn(dev) // a device without ARP does not look for neighbors
			}
			if err != nil {
				return err
			}
			list, err := netlink.NeighList(dev.Attrs().Index, unix.AF_INET6)
			for i := range list {
				if !list[i].IP.IsMulticast() && err == nil {
					err = netlink.NeighDel(&list[i])
				}
			}
			return err
		})
		if err != nil {
			s.Fatal(err)
		}
	}
}

// meet makes the server send to a closed port of its neighbor until the neighbor answers with an ICMP error. Both have then discovered each other.
// meet sends repeatedly for two reasons: a packet that waits for the neighbor's address is dropped after three solicitations, and the neighbor limits
// its ICMP errors.
func (s *scene) meet(to netip.AddrPort) {
	s.Helper()
	c, err := s.server.Dial(s.ctx, "udp", to)
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	for end := time.Now().Add(time.Minute); !errors.Is(err, unix.ECONNREFUSED) && time.Now().Before(end); {
		c.SetDeadline(time.Now().Add(time.Second))
		if _, err = c.Write([]byte{'?'}); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		s.Errorf("the server does not find its neighbor: %v", err)
	}
}

// hasAddressIn reports whether the server's device on the attacker's link has an address in a prefix.
func (s *scene) hasAddressIn(prefix netip.Prefix) (has bool) {
	s.Helper()
	err := s.server.Do(func() error {
		dev, err := netlink.LinkByName("attacker")
		if err != nil {
			return err
		}
		list, err := netlink.AddrList(dev, unix.AF_INET6)
		for _, a := range list {
			ip, _ := netip.AddrFromSlice(a.IP)
			has = has || prefix.Contains(ip)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return has
}
