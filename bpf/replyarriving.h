/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whether a packet that arrives is a reply (replyflow.h), for conditions of rules. */
#pragma once

#include "replyflow.h"
#include "l4.h"
#include "packet.h"
#include "parse.h"

/* The IP header of the packet that an ICMP error quotes. That packet left here, so its source is on this side. */
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

/* Reads the ports or the identifier of a quoted packet, in the form that a reply to it has. */
static __always_inline bool quoted_ports(context *ctx, struct reply_key *t, __u32 at, bool v6, __u8 proto)
{
	struct icmp_header icmp;
	__be16 ports[2];

	t->ports = 0;
	t->kind = REPLY_OTHER + proto;
	if (proto == (v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP)) {
		if (load_frame(ctx, at, &icmp, sizeof(icmp)) || !is_icmp_question(v6, icmp.type))
			return false;
		t->ports = icmp.rest & 0xffff;
		t->kind = REPLY_ICMP;
		return true;
	}
	if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
		return true;
	if (load_frame(ctx, at, ports, sizeof(ports)))
		return false;
	t->ports = (__u32)ports[0] << 16 | ports[1];
	t->kind = proto == IPPROTO_TCP ? REPLY_TCP : REPLY_UDP;
	return true;
}

/*
 * Skips the extension headers of a quoted packet, from an offset on. Returns the offset of the L4 header, and the protocol in the upper
 * half. Returns 0 when there is no L4 header, as in a later fragment: for conntrack, too, an error about a later fragment is no reply. A
 * global function.
 */
__noinline __u64 quoted_extensions(context *ctx, __u32 at, __u32 proto)
{
	struct extension ext;

	for (int i = 0; i <= MAX_EXT_HEADERS; i++) {
		if (!is_extension(proto))
			return (__u64)proto << 32 | at;
		if (load_frame(ctx, at, &ext, sizeof(ext)))
			return 0;
		at += (ext.length + 1) * 8;
		if (proto == IPPROTO_FRAGMENT) {
			at -= ext.length * 8; /* that byte is reserved */
			if (ext.field & bpf_htons(0xfff8))
				return 0;
		}
		proto = ext.next;
	}
	return 0;
}

/*
 * Reads the conversation that an ICMP error is about, from the packet that the error quotes. The destination of the error must be the source
 * of that packet, as conntrack requires (nf_conntrack_inet_error() of net/netfilter/nf_conntrack_proto_icmp.c). A global function, so that its
 * data is not on the stack of its callers.
 */
__noinline __u32 read_quoted(context *ctx, struct packet *p, struct reply_key *t)
{
	struct quoted q;
	__u64 l4;
	__u32 at;

	if (!p || !t)
		return false;
	at = p->l4 + sizeof(struct icmp_header);
	if (p->family) {
		if (load_frame(ctx, at, &q.six, sizeof(q.six)) || q.six.version != 6)
			return false;
		reply_ends6(t, &q.six.daddr, &q.six.saddr);
		if (q.six.saddr.in6_u.u6_addr32[3] != bpf_htonl(p->dst.lo) ||
		    q.six.saddr.in6_u.u6_addr32[2] != bpf_htonl(p->dst.lo >> 32) ||
		    q.six.saddr.in6_u.u6_addr32[1] != bpf_htonl(p->dst.hi) ||
		    q.six.saddr.in6_u.u6_addr32[0] != bpf_htonl(p->dst.hi >> 32))
			return false;
		l4 = quoted_extensions(ctx, at + sizeof(q.six), q.six.nexthdr);
		return l4 && quoted_ports(ctx, t, l4, true, l4 >> 32);
	}
	if (load_frame(ctx, at, &q.four, sizeof(q.four)) || q.four.version != 4)
		return false;
	reply_ends4(t, q.four.daddr, q.four.saddr);
	if (q.four.saddr != bpf_htonl(p->dst.lo) || q.four.frag_off & bpf_htons(0x1fff))
		return false;
	return quoted_ports(ctx, t, at + q.four.ihl * 4, false, q.four.protocol);
}

/* Reads the key of the conversation to which a packet would belong as a reply. */
static __always_inline bool read_reply_key(context *ctx, struct packet *p, struct reply_key *t, __u32 *flags)
{
	__u32 type = p->icmp & 0xff00;
	struct icmp_header icmp;

	reply_ends_of(t, &p->src, &p->dst, p->family);
	t->ports = 0;
	t->kind = REPLY_OTHER + p->proto;
	if (p->fragment == FRAGMENT_LATER)
		return true;
	if (p->port != PORT_NONE) {
		t->ports = reply_ports_of(p);
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
	if (!is_icmp_answer(p->family, type) || !p->l4 || load_frame(ctx, p->l4, &icmp, sizeof(icmp)))
		return false;
	t->ports = icmp.rest & 0xffff;
	t->kind = REPLY_ICMP;
	return true;
}

/* Whether a packet is a reply. A question changes nothing. A global function, so the verifier assumes that p may be null. */
__noinline __u32 packet_is_reply(context *ctx, struct packet *p)
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
