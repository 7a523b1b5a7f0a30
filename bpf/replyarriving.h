/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether a packet that arrives is a reply (replyflow.h), for conditions of rules. */
#pragma once

#include "replyflow.h"
#include "l4.h"
#include "packet.h"

/* The start of the packet that an ICMP error quotes. It left here: its source is this side. */
struct quoted {
	union {
		struct iphdr four;
		struct ipv6hdr six;
	};
};

static __always_inline bool is_icmp_error(struct packet *p, __u32 type)
{
	return p->family ? type >= 1 && type <= 4 : type == 3 || type == 11 || type == 12;
}

/* Reads the ports or the identifier of a packet that left, as they stand in its answer. */
static __always_inline bool quoted_ports(struct xdp_md *ctx, struct reply_key *t, __u32 at, bool v6, __u8 proto)
{
	struct icmp_header icmp;
	__be16 ports[2];

	t->ports = 0;
	t->kind = REPLY_OTHER + proto;
	if (proto == (v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP)) {
		if (bpf_xdp_load_bytes(ctx, at, &icmp, sizeof(icmp)) || !is_icmp_question(v6, icmp.type))
			return false;
		t->ports = icmp.rest & 0xffff;
		t->kind = REPLY_ICMP;
		return true;
	}
	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
		return true;
	if (bpf_xdp_load_bytes(ctx, at, ports, sizeof(ports)))
		return false;
	t->ports = (__u32)ports[0] << 16 | ports[1];
	t->kind = proto == IPPROTO_TCP ? REPLY_TCP : REPLY_UDP;
	return true;
}

/*
 * Reads which conversation an ICMP error is about, from the packet that it quotes. It must go to whom that packet was of, as conntrack
 * asks (nf_conntrack_inet_error() of net/netfilter/nf_conntrack_proto_icmp.c). A global function, so that what it reads is not on the stack of
 * others.
 */
__noinline __u32 read_quoted(struct xdp_md *ctx, struct packet *p, struct reply_key *t)
{
	struct quoted q;
	__u32 at;

	if (!p || !t)
		return false;
	at = p->l4 + sizeof(struct icmp_header);
	if (p->family) {
		if (bpf_xdp_load_bytes(ctx, at, &q.six, sizeof(q.six)) || q.six.version != 6)
			return false;
		reply_ends6(t, &q.six.daddr, &q.six.saddr);
		if (t->own != bpf_htonl(p->dst.lo) || q.six.saddr.in6_u.u6_addr32[2] != bpf_htonl(p->dst.lo >> 32) ||
		    q.six.saddr.in6_u.u6_addr32[1] != bpf_htonl(p->dst.hi) ||
		    q.six.saddr.in6_u.u6_addr32[0] != bpf_htonl(p->dst.hi >> 32))
			return false;
		return quoted_ports(ctx, t, at + sizeof(q.six), true, q.six.nexthdr);
	}
	if (bpf_xdp_load_bytes(ctx, at, &q.four, sizeof(q.four)) || q.four.version != 4)
		return false;
	reply_ends4(t, q.four.daddr, q.four.saddr);
	if (q.four.saddr != bpf_htonl(p->dst.lo))
		return false;
	return quoted_ports(ctx, t, at + q.four.ihl * 4, false, q.four.protocol);
}

/* Reads which conversation a packet would be of. */
static __always_inline bool read_reply_key(struct xdp_md *ctx, struct packet *p, struct reply_key *t, __u32 *flags)
{
	__u32 type = p->icmp & 0xff00;
	struct icmp_header icmp;

	reply_ends_of(t, &p->src, &p->dst, p->family);
	t->ports = 0;
	t->kind = REPLY_OTHER + p->proto;
	if (p->fragment == FRAGMENT_LATER)
		return true;
	if (p->port != PORT_NONE) {
		t->ports = (__u32)bpf_htons(p->port) << 16 | bpf_htons(p->sport);
		t->kind = p->port < PORT_UDP ? REPLY_TCP : REPLY_UDP;
		if (t->kind == REPLY_TCP)
			*flags |= p->flags & 0xff;
		return true;
	}
	if (p->icmp == ICMP_NONE)
		return p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP;
	type >>= 8;
	if (is_icmp_error(p, type)) {
		*flags |= REPLY_LOOK;
		return read_quoted(ctx, p, t);
	}
	if (!is_icmp_answer(p->family, type) || !p->l4 || bpf_xdp_load_bytes(ctx, p->l4, &icmp, sizeof(icmp)))
		return false;
	t->ports = icmp.rest & 0xffff;
	t->kind = REPLY_ICMP;
	return true;
}

/* Whether a packet is a reply. A question changes nothing. A global function, for which the argument might be null. */
__noinline __u32 packet_is_reply(struct xdp_md *ctx, struct packet *p)
{
	__u32 flags;
	struct reply_key t;

	if (!p)
		return 0;
	flags = p->seen & SEEN_QUESTION ? REPLY_LOOK : 0;
	if (!read_reply_key(ctx, p, &t, &flags))
		return 0;
	return is_reply(t.pair, reply_ends(&t), flags, reply_index(&t));
}
