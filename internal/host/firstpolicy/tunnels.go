// SPDX-License-Identifier: Apache-2.0

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

	"github.com/floodwall/floodwall/internal/host/exposed"
	"github.com/floodwall/floodwall/internal/host/facts"
	"github.com/floodwall/floodwall/internal/os/sockets"
)

// carriers returns the carriers of the active tunnels and of the IPsec states. A user without the right to read states can still write a policy.
func carriers() (list []facts.Carrier, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	states, err := netlink.XfrmStateList(netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EPROTONOSUPPORT) { // a missing right, or a kernel without IPsec, is no error
		return nil, fmt.Errorf("states of IPsec: %w", err)
	}
	addresses, err := sockets.OwnAddresses()
	if err != nil {
		return nil, err
	}
	own := func(ip net.IP) bool {
		a, ok := netip.AddrFromSlice(ip)
		return ok && slices.Contains(addresses, a.Unmap())
	}
	return append(upTunnels(links), ipsecCarriers(states, own)...), nil
}

// upTunnels returns the carriers of the tunnels that are up. Devices such as gre0, which the kernel module creates, are down.
func upTunnels(links []netlink.Link) (list []facts.Carrier) {
	for _, link := range links {
		if link.Attrs().Flags&net.FlagUp != 0 {
			list = append(list, facts.Outer(link)...)
		}
	}
	return list
}

// ipsecCarriers returns the carriers of the IPsec states for packets to this host.
func ipsecCarriers(states []netlink.XfrmState, own func(net.IP) bool) (list []facts.Carrier) {
	for _, s := range states {
		if (s.Proto == netlink.XFRM_PROTO_ESP || s.Proto == netlink.XFRM_PROTO_AH) && s.Encap == nil && own(s.Dst) {
			list = append(list, facts.Carrier{Device: "IPsec", Proto: uint8(s.Proto), Remote: facts.Peer(s.Src)})
		}
	}
	return list
}

// tunnels writes a rule for each protocol that the kernel receives, with its senders.
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
		if c.Remote.IsValid() {
			from = c.Remote.String()
		}
		peers[c.Proto], reasons[c.Proto] = withOne(peers[c.Proto], from), withOne(reasons[c.Proto], exposed.PlainName(c.Device))
	}
	for _, n := range protos {
		p("  # The kernel receives %s for %s.", exposed.ProtocolName(n), strings.Join(reasons[n], ", "))
		who := fmt.Sprintf(", from: [%s]", strings.Join(peers[n], ", "))
		if slices.Contains(peers[n], "") {
			who = ""
		}
		p("  - {name: tunnel-%d, proto: %d%s, then: pass}", n, n, who)
	}
}

// decrypted writes the rule for packets that IPsec has decrypted by a policy. They arrive a second time on the device that received them, at all
// stages except XDP in native mode. The kernel drops unencrypted packets of these networks (xfrm_policy_check), so a forger gains nothing from the
// rule. IPsec policies for all addresses are left out, because the rule would pass all packets.
func (h *Host) decrypted(p func(string, ...any)) {
	from := slices.DeleteFunc(slices.Clone(h.Decrypted), func(n netip.Prefix) bool { return n.Bits() == 0 })
	if len(from) == 0 {
		return
	}
	p("  # IPsec decrypts the packets of these networks by policies. The kernel drops others that claim to be of them.")
	p("  - {name: ipsec, from: [%s], then: pass}", listed(from))
}

// withOne appends s unless the list has it.
func withOne(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
