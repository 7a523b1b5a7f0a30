// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestRoutes fills tables whose last batch is complete or not, and checks that the kernel has all routes.
func TestRoutes(t *testing.T) {
	for _, n := range []int{0, 1, routeBatch - 1, routeBatch, 2*routeBatch + 1} {
		p := newPair(t)
		via := netip.MustParseAddr("10.0.0.2")
		want := map[netip.Prefix]netip.Addr{}
		for i := range n {
			want[netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24)] = via
		}
		if err := p.a.Host.Routes(p.a, maps.All(want)); err != nil {
			t.Fatal(err)
		}
		list, err := p.a.Host.links.RouteListFiltered(unix.AF_INET, &netlink.Route{Protocol: unix.RTPROT_STATIC}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			t.Fatal(err)
		}
		got := map[netip.Prefix]netip.Addr{}
		for _, r := range list {
			addr, _ := netip.AddrFromSlice(r.Dst.IP.To4())
			gateway, _ := netip.AddrFromSlice(r.Gw.To4())
			bits, _ := r.Dst.Mask.Size()
			if got[netip.PrefixFrom(addr, bits)] = gateway; r.LinkIndex != p.a.Index {
				t.Errorf("%v goes out of device %d, want %d", r.Dst, r.LinkIndex, p.a.Index)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d routes: the kernel has %d, or others", n, len(got))
		}
		if n > 0 && p.a.Host.Routes(p.a, maps.All(want)) == nil {
			t.Errorf("%d routes that are there already: no error", n)
		}
	}
}

// TestIPCounts sends packets to a host and through it.
func TestIPCounts(t *testing.T) {
	p := newPair(t)
	if err := p.b.Host.Router(); err != nil {
		t.Fatal(err)
	}
	if err := p.b.Host.Route(netip.MustParsePrefix("20.0.0.0/8"), netip.MustParseAddr("10.0.0.1"), p.b); err != nil {
		t.Fatal(err)
	}
	for to, want := range map[string]IPCounts{"10.0.0.2": {Received: 7, Bytes: 7 * 46, Delivered: 7, UDP: 7}, "20.1.2.3": {Received: 7, Bytes: 7 * 46, Forwarded: 7}} {
		before, err := p.b.Host.IPCounts()
		if err != nil {
			t.Fatal(err)
		}
		p.send(t, SourceOptions{
			Flows: []Flow{{From: MustAddrs("10.0.0.1"), To: MustAddrs(to), SPort: Port(4000), DPort: Port(9)}}, Count: 7, Rate: gentle,
		})
		await(t, "packets to "+to, func() bool {
			after, err := p.b.Host.IPCounts()
			return err == nil && IPCounts{
				Delivered: after.Delivered - before.Delivered, Forwarded: after.Forwarded - before.Forwarded, UDP: after.UDP - before.UDP,
				Received: after.Received - before.Received, Bytes: after.Bytes - before.Bytes,
			} == want
		})
	}
}
