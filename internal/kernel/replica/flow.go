// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/model/packet"
)

// Numbers of include/uapi/linux/netfilter/nfnetlink_conntrack.h, nf_conntrack_common.h and nf_conntrack_tcp.h.
const (
	ctaTupleOrig       = 1
	ctaTupleReply      = 2
	ctaStatus          = 3
	ctaProtoInfo       = 4
	ctaTimeout         = 7
	ctaTupleMaster     = 14
	ctaTupleIP         = 1
	ctaTupleProto      = 2
	ctaProtoNum        = 1
	ctaProtoSrcPort    = 2
	ctaProtoDstPort    = 3
	ctaProtoICMPID     = 4 // ICMPv6 adds icmpv6Attrs
	ctaProtoICMPType   = 5
	ctaProtoICMPCode   = 6
	icmpv6Attrs        = 3
	ctaProtoInfoTCP    = 1
	ctaTCPState        = 1
	ipsSeenReply       = 1 << 1
	ipsAssured         = 1 << 2
	ipsConfirmed       = 1 << 3
	tcpEstablished     = 3
	subsysConntrack    = 1
	msgNew             = 0
	flowTimeout        = 600 // seconds, more than any question takes
	masterPort         = 9   // the port of the made-up flow to which a related flow belongs
	icmpEcho, icmpPong = 8, 0
	icmp6Echo          = 128
	icmp6Pong          = 129
)

// know prepares conntrack so that the packet gets the wanted state. If no flow can produce that state, the state in the answer differs.
func (q *question) know(context.Context) error {
	if !q.rules.stateful() {
		return nil
	}
	state := q.packet.Value[packet.State]
	if state == packet.StateInvalid { // with this setting, a packet other than a SYN starts no flow
		return set("netfilter/nf_conntrack_tcp_loose", "0")
	}
	if state != packet.StateEstablished && state != packet.StateRelated {
		return nil
	}
	if err := set("netfilter/nf_conntrack_tcp_be_liberal", "1"); err != nil { // the made-up flow has no TCP window, so window checks must be off
		return err
	}
	f, ok := flowOf(q.packet)
	if !ok {
		return nil
	}
	var master *flow
	if state == packet.StateRelated {
		master = &flow{src: f.src, dst: f.dst, proto: unix.IPPROTO_TCP, from: masterPort, to: masterPort}
		if err := master.add(nil); err != nil {
			return fmt.Errorf("making a flow for the packet to be related to: %w", err)
		}
	}
	if err := f.add(master); err != nil {
		return fmt.Errorf("making a flow for the packet: %w", err)
	}
	return nil
}

// flow is a flow, described by its first packet. For ICMP and ICMPv6, from is the type and to is the code.
type flow struct {
	src, dst netip.Addr
	proto    uint8
	from, to uint16
}

// flowOf returns the flow whose first packet is p. ICMP messages other than echo have no flow of their own.
func flowOf(p packet.Packet) (*flow, bool) {
	if p.Kind != packet.IP {
		return nil, false
	}
	f := &flow{src: p.Src, dst: p.Dst, proto: uint8(p.Value[packet.Proto])}
	switch f.proto {
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		f.from, f.to = uint16(p.Value[packet.ICMP]>>8&0xff), uint16(p.Value[packet.ICMP]&0xff)
		_, echo := pong[f.from]
		return f, echo && p.Value[packet.ICMP] != packet.ICMPNone
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		f.from, f.to = uint16(p.Value[packet.SPort]), uint16(p.Value[packet.DPort])
		return f, p.Value[packet.SPort] < packet.PortNone && p.Value[packet.DPort] < packet.PortNone
	}
	return f, true
}

// pong maps a type to the type of its answer, in both directions.
var pong = map[uint16]uint16{icmpEcho: icmpPong, icmpPong: icmpEcho, icmp6Echo: icmp6Pong, icmp6Pong: icmp6Echo}

// answered returns the reverse flow: its first packet is the answer to the first packet of f.
func (f *flow) answered() *flow {
	r := &flow{src: f.dst, dst: f.src, proto: f.proto, from: f.to, to: f.from}
	if f.isICMP() {
		r.from, r.to = pong[f.from], f.to
	}
	return r
}

func (f *flow) isICMP() bool { return f.proto == unix.IPPROTO_ICMP || f.proto == unix.IPPROTO_ICMPV6 }

// add adds the flow to conntrack. Without a master, the flow is one in which both sides have sent packets. With a master, the flow is one that the
// master's packets announced and that has had no packet yet.
func (f *flow) add(master *flow) error {
	r := nl.NewNetlinkRequest(subsysConntrack<<8|msgNew, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	family := uint8(unix.AF_INET)
	if f.src.Is6() {
		family = unix.AF_INET6
	}
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	r.AddData(f.tuple(ctaTupleOrig))
	r.AddData(f.answered().tuple(ctaTupleReply))
	status := uint32(ipsConfirmed)
	if master == nil {
		status |= ipsSeenReply | ipsAssured
	} else {
		r.AddData(master.tuple(ctaTupleMaster))
	}
	r.AddData(nl.NewRtAttr(ctaStatus, binary.BigEndian.AppendUint32(nil, status)))
	r.AddData(nl.NewRtAttr(ctaTimeout, binary.BigEndian.AppendUint32(nil, flowTimeout)))
	if f.proto == unix.IPPROTO_TCP && master == nil {
		info := nl.NewRtAttr(unix.NLA_F_NESTED|ctaProtoInfo, nil)
		info.AddRtAttr(unix.NLA_F_NESTED|ctaProtoInfoTCP, nil).AddRtAttr(ctaTCPState, []byte{tcpEstablished})
		r.AddData(info)
	}
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}

// tuple returns the flow as a netlink attribute.
func (f *flow) tuple(kind int) *nl.RtAttr {
	a := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
	ip := a.AddRtAttr(unix.NLA_F_NESTED|ctaTupleIP, nil)
	number := 1 // CTA_IP_V4_SRC and CTA_IP_V4_DST are 1 and 2; the numbers for IPv6 are 3 and 4
	if f.src.Is6() {
		number = 3
	}
	ip.AddRtAttr(number, f.src.AsSlice())
	ip.AddRtAttr(number+1, f.dst.AsSlice())
	proto := a.AddRtAttr(unix.NLA_F_NESTED|ctaTupleProto, nil)
	proto.AddRtAttr(ctaProtoNum, []byte{f.proto})
	if !f.isICMP() {
		proto.AddRtAttr(ctaProtoSrcPort, binary.BigEndian.AppendUint16(nil, f.from))
		proto.AddRtAttr(ctaProtoDstPort, binary.BigEndian.AppendUint16(nil, f.to))
		return a
	}
	more := 0
	if f.proto == unix.IPPROTO_ICMPV6 {
		more = icmpv6Attrs
	}
	proto.AddRtAttr(ctaProtoICMPID+more, []byte{0, 0})
	proto.AddRtAttr(ctaProtoICMPType+more, []byte{byte(f.from)})
	proto.AddRtAttr(ctaProtoICMPCode+more, []byte{byte(f.to)})
	return a
}
