/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns a query at a game server into what a2s.h says: a challenge, which is never longer than the query, or the service's latest answer. */
#pragma once

#include "a2s.h"
#include "client.h"
#include "dnsreply.h"
#include "throttle.h"

/* Turns the IP header round, of a frame that has it: the verifier does not see that where IPv6 is, there is more. */
static __always_inline bool return_ip(void *data, void *end, __u32 l3, bool v6, __u32 length)
{
	if (!v6) {
		return_ipv4(data + l3, length);
		return true;
	}
	if (data + l3 + sizeof(struct ipv6hdr) > end)
		return false;
	return_ipv6(data + l3, length);
	return true;
}

/*
 * Turns a query into a challenge. Returns the length of the frame, to which the caller cuts it, or 0 when there is none:
 * see make_reply(). A global function.
 */
__noinline __u32 make_challenge(struct xdp_md *ctx, struct packet *p)
{
	const __u32 length = sizeof(struct udphdr) + A2S_SHORT;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4, cookie;
	struct a2s_start *message;
	bool v6;

	if (!p || bpf_xdp_get_buff_len(ctx) != end - data)
		return 0;
	v6 = p->family;
	l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	message = data + l4;
	if (p->l4 != l4 || (void *)message + length > end || !message->sport || (v6 && !message->check) ||
	    !return_ethernet(data))
		return 0;
	cookie = a2s_cookie(p, time_of(p) >> A2S_COOKIE_UNIT);
	message->kind = A2S_CHALLENGE;
	message->challenge[0] = cookie;
	message->challenge[1] = cookie >> 8;
	message->challenge[2] = cookie >> 16;
	message->challenge[3] = cookie >> 24;
	if (!return_ip(data, end, l3, v6, length))
		return 0;
	return_udp((void *)message, length);
	set_checksums(ctx, l3, l4, v6, length);
	return l4 + length;
}

enum {
	MOST_HEADERS = 128, /* bytes, of Ethernet, VLAN tags, IP and UDP */
	MOST_IN_FRONT =
		192, /* by which a frame may grow in front: all drivers leave 256 bytes there, of which the kernel takes some (XDP_PACKET_HEADROOM) */
};

/*
 * Makes a frame, whose headers have so many bytes, longer by some bytes or shorter. Most drivers leave space behind a frame. A veth does not, so
 * there the headers move to the front. Returns whether that was possible; else the frame is as it was. A global function.
 */
__noinline __u32 resize_frame(struct xdp_md *ctx, __u32 headers, int by)
{
	__u8 copy[MOST_HEADERS];

	if (!bpf_xdp_adjust_tail(ctx, by))
		return 1;
	if (by <= 0 || by > MOST_IN_FRONT || !headers || headers > MOST_HEADERS)
		return 0;
	headers = known_length(headers, MOST_HEADERS);
	__builtin_memset(copy, 0, sizeof(copy)); /* before Linux 6.3 all that may be read has to be written first */
	if (bpf_xdp_load_bytes(ctx, 0, copy, headers) || bpf_xdp_adjust_head(ctx, -by))
		return 0;
	return !bpf_xdp_store_bytes(ctx, 0, copy, headers);
}

/*
 * Turns a query into the service's latest answer. Returns the length of the frame, 0 when there is none: see make_reply(). A global
 * function.
 */
__noinline __u32 make_served(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4, size, length;
	struct a2s_answer *a;
	struct udphdr *udp;
	bool v6;

	if (!p || bpf_xdp_get_buff_len(ctx) != end - data)
		return 0;
	a = answer_of(p, read_query(ctx, p->l4, datagram_length(p)));
	v6 = p->family;
	l4 = (l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr))) & 0x7f;
	udp = data + l4;
	if (!a || p->l4 != l4 || (void *)(udp + 1) > end || !udp->source || (v6 && !udp->check) || is_with_group(data))
		return 0;
	size = a->length;
	if (!size || size > A2S_MOST)
		return 0;
	size = known_length(size, A2S_SPACE);
	length = sizeof(*udp) + size;
	if (!resize_frame(ctx, l4 + sizeof(*udp), (int)(l4 + length) - (int)p->bytes))
		return 0;
	if (bpf_xdp_store_bytes(ctx, l4 + sizeof(*udp), a->data, size))
		return 0;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	udp = data + l4;
	if ((void *)(udp + 1) > end || !return_ethernet(data))
		return 0;
	if (!return_ip(data, end, l3, v6, length))
		return 0;
	return_udp(udp, length);
	set_checksums_with(ctx, l3, l4, v6, length, sizeof(*udp), a->sum);
	return l4 + length;
}

/* Answers a query with a challenge. Counts it, with the bytes sent, apart from the query. */
static __always_inline int challenge(struct xdp_md *ctx, struct packet *p)
{
	__u32 length = may_answer(ctx, p) ? make_challenge(ctx, p) : 0;

	if (!length || bpf_xdp_adjust_tail(ctx, length - p->bytes))
		return XDP_DROP;
	count(DECISION(SLOT_REPLIES, VERDICT_PASS), length);
	return XDP_TX;
}

#define PASS_INTERVAL 1000000 /* nanoseconds, and */
#define PASS_BURST 100        /* how many more may come at once, of queries whose answers have no space here */

static __u64 pass_next;

/*
 * Answers a query in place of the service, likewise. An answer that its frame has no space for, as it may be on a veth, is the service's
 * own.
 */
static __always_inline int serve(struct xdp_md *ctx, struct packet *p)
{
	__u32 length = may_answer(ctx, p) ? make_served(ctx, p) : 0;
	__u64 next;

	if (length) {
		count(DECISION(SLOT_REPLIES, VERDICT_PASS), length);
		return XDP_TX;
	}
	next = read_once(&pass_next);
	if (!within_rate(&next, time_of(p), PASS_INTERVAL, PASS_BURST))
		return XDP_DROP;
	pass_next = next;
	note_game_query(p, query_of(ctx, p));
	return XDP_PASS;
}
