/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets that servers of RakNet send (raknet.h): announced properties, and replies to first requests that this program made of second ones. */
#pragma once

#include "client.h"
#include "datagram.h"
#include "raknet.h"
#include "turnback.h"

/* The kept second request of the client to which a server sends a packet; NULL if there is none. l4 is the offset of the packet's UDP header. */
static __always_inline struct raknet_request *noted_request(struct __sk_buff *skb, __u32 l4)
{
	struct service_client c = {};

	return read_client(skb, l4, &c) ? bpf_map_lookup_elem(&raknet_requests, &c) : NULL;
}

/* Reads the first reply of a server. l4 is the offset of its UDP header. Returns false for another datagram. */
static __always_inline bool read_reply1(struct __sk_buff *skb, __u32 l4, struct raknet_start *s)
{
	const __u32 least = offsetof(struct raknet_start, kind) + RAKNET_SHORT;

	if (bpf_skb_load_bytes(skb, l4 + 1, s, sizeof(*s) - 1) && bpf_skb_load_bytes(skb, l4 + 1, s, least))
		return false;
	return s->kind == RAKNET_REPLY1 && has_magic(s);
}

/* The MTU in a reply. */
static __always_inline __u32 reply_mtu(const struct raknet_start *s)
{
	return s->security ? s->mtu[0] << 8 | s->mtu[1] : s->theirs[0] << 8 | s->theirs[1];
}

/*
 * Notes the properties of a server from a reply that leaves. Another GUID shows that the server was restarted, maybe with another MTU. Forwarded replies
 * count, except those that leave by the device at which they arrived: a client with a wrong GUID still reaches the server. A global function.
 */
__noinline __u32 note_server(struct __sk_buff *skb, __u32 l4, struct raknet_start *s)
{
	struct raknet_server now = {}, *old;
	struct service_key key = {};
	struct address to;
	__be16 port;

	if (!s || skb->ingress_ifindex == skb->ifindex || !datagram_ends(skb, l4, &key.service, &to) ||
	    bpf_skb_load_bytes(skb, l4, &port, sizeof(port)))
		return 0;
	key.port = opaque(bpf_ntohs(port)) & 0xffff;
	old = bpf_map_lookup_elem(&raknet_servers, &key);
	__builtin_memcpy(now.guid, s->guid, sizeof(now.guid));
	now.mtu = reply_mtu(s);
	if (old && old->mtu >= now.mtu && !__builtin_memcmp(old->guid, now.guid, sizeof(now.guid)))
		return 0;
	bpf_map_update_elem(&raknet_servers, &key, &now, BPF_ANY);
	return 0;
}

/*
 * Takes the first reply of a server that leaves. If a second request of its client waits, this client is known from now on, at first only for the time of
 * a new client. Then returns RAKNET_REQUEST2: turn_reply1() must turn the reply into that request. Otherwise returns 0. A global function.
 */
__noinline __u32 take_reply1(struct __sk_buff *skb, __u32 l4, __u64 client, __u64 index)
{
	struct raknet_start s = {};
	struct raknet_request *r;
	struct flood *f;
	__u32 number;
	__be16 port;

	if (bpf_skb_load_bytes(skb, l4, &port, sizeof(port)))
		return 0;
	f = flood_of_port(port, &number);
	if (!f || f->protocol != DATAGRAMS_RAKNET || !read_reply1(skb, l4, &s))
		return 0;
	r = noted_request(skb, l4);
	if (!r || read_once(&r->until) < bpf_ktime_get_ns()) {
		note_server(skb, l4, &s);
		return 0;
	}
	r->until = 0;
	promote_client(client, index, LIFE_REPLY_CLIENT - LIFE_REPLY_CLIENT_NEW);
	return RAKNET_REQUEST2;
}

/* Turns a reply that take_reply1() took into the client's second request, with the server's cookie if it has one. Returns a verdict. A global function. */
__noinline int turn_reply1(struct __sk_buff *skb)
{
	struct raknet_request *r = noted_request(skb, turned_l4(skb));
	struct raknet_start s = {};
	struct turned m = {};
	__u32 length;

	if (!r || !read_reply1(skb, turned_l4(skb), &s))
		return TCX_NEXT;
	length = r->length;
	m.data[0] = RAKNET_REQUEST2;
	__builtin_memcpy(m.data + 1, s.magic, sizeof(s.magic));
	if (s.security) {
		__builtin_memcpy(m.data + RAKNET_COOKIE_AT, s.theirs, sizeof(s.theirs));
		__builtin_memcpy(m.data + RAKNET_ADDRESS_AT, r->rest, sizeof(r->rest));
		length += RAKNET_ADDRESS_AT;
	} else {
		__builtin_memcpy(m.data + RAKNET_COOKIE_AT, r->rest, sizeof(r->rest));
		length += RAKNET_COOKIE_AT;
	}
	return turn_back(skb, &m, length);
}
