package firstpolicy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Carrier is what the kernel itself receives for a tunnel or for IPsec. No socket tells of it.
type Carrier struct {
	Proto uint8      // IANA's number
	Peer  netip.Addr // who sends it; not valid: anybody
	For   string     // the device of the tunnel, or IPsec
}

// carriers asks the kernel for the tunnels that are up and for IPsec's states. Who may not ask for states may still write a policy.
func carriers() (list []Carrier, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	states, err := netlink.XfrmStateList(netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EPROTONOSUPPORT) { // a kernel without IPsec
		return nil, fmt.Errorf("states of IPsec: %w", err)
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	own := func(ip net.IP) bool {
		return slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return a.IP.Equal(ip) })
	}
	return append(tunnelCarriers(links), ipsecCarriers(states, own)...), nil
}

// tunnelCarriers are those of tunnel devices. What a tunnel has put into UDP comes to a socket of the kernel, which is listed as others.
func tunnelCarriers(links []netlink.Link) (list []Carrier) {
	for _, link := range links {
		if link.Attrs().Flags&net.FlagUp == 0 { // such as gre0, which comes with the module
			continue
		}
		var protos []uint8
		var remote net.IP
		switch l := link.(type) {
		case *netlink.Gretun:
			protos, remote = bare(l.EncapType, unix.IPPROTO_GRE), l.Remote
		case *netlink.Gretap:
			protos, remote = bare(l.EncapType, unix.IPPROTO_GRE), l.Remote
		case *netlink.Iptun:
			protos, remote = bare(l.EncapType, unix.IPPROTO_IPIP), l.Remote
		case *netlink.Sittun:
			protos, remote = bare(l.EncapType, inner(l.Proto, unix.IPPROTO_IPV6)...), l.Remote
		case *netlink.Ip6tnl:
			protos, remote = bare(l.EncapType, inner(l.Proto, unix.IPPROTO_IPIP, unix.IPPROTO_IPV6)...), l.Remote
		}
		for _, proto := range protos {
			list = append(list, Carrier{proto, peer(remote), link.Attrs().Name})
		}
	}
	return list
}

// bare are protocols that come without a header of UDP before them (TUNNEL_ENCAP_NONE of linux/if_tunnel.h).
func bare(encapsulation uint16, protos ...uint8) []uint8 {
	if encapsulation != 0 {
		return nil
	}
	return protos
}

// inner is the one protocol that a tunnel carries, or what one without a choice carries.
func inner(proto uint8, all ...uint8) []uint8 {
	if proto != 0 {
		return []uint8{proto}
	}
	return all
}

func peer(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	if a = a.Unmap(); a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// ipsecCarriers are those of the states by which this host receives.
func ipsecCarriers(states []netlink.XfrmState, own func(net.IP) bool) (list []Carrier) {
	for _, s := range states {
		if (s.Proto == netlink.XFRM_PROTO_ESP || s.Proto == netlink.XFRM_PROTO_AH) && s.Encap == nil && own(s.Dst) {
			list = append(list, Carrier{uint8(s.Proto), peer(s.Src), "IPsec"})
		}
	}
	return list
}

// tunnels writes a rule for each protocol that the kernel receives, for those who send it.
func (h *Host) tunnels(p func(string, ...any)) {
	var protos []uint8
	peers, reasons := map[uint8][]string{}, map[uint8][]string{}
	for _, c := range h.Carriers {
		if slices.Contains(h.Raw, c.Proto) {
			continue
		}
		if !slices.Contains(protos, c.Proto) {
			protos = append(protos, c.Proto)
		}
		from := ""
		if c.Peer.IsValid() {
			from = c.Peer.String()
		}
		peers[c.Proto], reasons[c.Proto] = withOne(peers[c.Proto], from), withOne(reasons[c.Proto], plainName(c.For))
	}
	for _, n := range protos {
		p("  # The kernel receives %s for %s.", protocolName(n), strings.Join(reasons[n], ", "))
		who := fmt.Sprintf(", from: [%s]", strings.Join(peers[n], ", "))
		if slices.Contains(peers[n], "") {
			who = ""
		}
		p("  - {name: tunnel-%d, proto: %d%s, then: pass}", n, n, who)
	}
}

// withOne appends what a list does not have.
func withOne(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
