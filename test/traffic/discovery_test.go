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

// TestNeighborDiscovery has the server find its neighbor, be found by it, and take an address from a router's advertisement,
// by the messages of real kernels, behind `default: drop`. An advertisement that RFC 4861 or RFC 6980 forbids makes no address.
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

// advertisement is a line for a router's message that advertises a prefix (RFC 4861, 4.2 and 4.6.2).
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

// forgetNeighbors has both ends of the attacker's link ask for their neighbors, and forget the address of the other's device.
func (s *scene) forgetNeighbors() {
	s.Helper()
	for device, h := range map[string]*lab.Host{"attacker": s.server, "server": s.attacker} {
		err := h.Do(func() error {
			dev, err := netlink.LinkByName(device)
			if err == nil {
				err = netlink.LinkSetARPOn(dev) // without which a device asks for no neighbor
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

// meet has the server ask a closed port of its neighbor: the answer comes when each has found the other.
func (s *scene) meet(to netip.AddrPort) {
	s.Helper()
	c, err := s.server.Dial(s.ctx, "udp", to)
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	_, err = c.Write([]byte{'?'})
	if err == nil {
		_, err = c.Read(make([]byte, 1))
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
