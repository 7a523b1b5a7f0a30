/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The challenge to a usual query at a game server, called by the generated entry. During a flood nearly all queries are forged, without a
 * challenge or with a wrong one. They are found and challenged here, with a fifth of the instructions that general() takes. The cookie is the
 * same.
 */
#pragma once

#include "a2s.h"
#include "client.h"
#include "clock.h"
#include "count.h"
#include "dnsreply.h"
#include "ends.h"
#include "gamereply.h"
#include "sample.h"
#include "segment.h"

enum { QUERY_OTHER = 0 }; /* no enum xdp_action that is used */

#define COOKIE_EDGE (1ULL << 25) /* nanoseconds, 34 ms: the coarse clock is less late */

/* What a client of INFO says: "Source Engine Query" with the zero behind it, in words of a little-endian machine. */
#define INFO_TEXT1 0x4520656372756f53
#define INFO_TEXT2 0x755120656e69676e
#define INFO_TEXT3 0x00797265

static __always_inline bool is_info_text(const __u8 *at)
{
	return *(__u64 *)at == INFO_TEXT1 && *(__u64 *)(at + 8) == INFO_TEXT2 && *(__u32 *)(at + 16) == INFO_TEXT3;
}

/* The challenge of a query, as read_query() has it; NO_CHALLENGE if there is none. Returns false for a datagram that is no query, or not whole. */
static __always_inline bool read_usual_query(struct segment *s, void *end, __u32 *challenge)
{
	struct a2s_start *m = (void *)s->tcp;
	__u8 *payload = (void *)m + sizeof(struct udphdr), *at = m->challenge;
	__u32 length = s->left - sizeof(struct udphdr);

	*challenge = NO_CHALLENGE;
	if (m->mark != A2S_MARK)
		return false;
	if (m->kind == A2S_INFO) {
		if (payload + A2S_INFO_SHORT > (__u8 *)end || !is_info_text(payload + A2S_LEAST))
			return false;
		if (length == A2S_INFO_SHORT)
			return true;
		at = payload + A2S_INFO_SHORT;
		if (length != A2S_INFO_LONG || payload + A2S_INFO_LONG > (__u8 *)end)
			return false;
	} else if ((m->kind != A2S_PLAYER && m->kind != A2S_RULES) || length != A2S_SHORT) {
		return false;
	}
	*challenge = *(__u32 *)at;
	return true;
}

/* Whether the service may have issued a challenge to a client: the filters of the table of replies tell most that it has not. */
static __always_inline bool may_be_issued(const struct ends *e, __u32 challenge)
{
	struct reply_key client = { .kind = REPLY_UDP }, t = {};
	struct address other = e->src, own = e->dst;

	reply_ends_of(&client, &other, &own, e->v6);
	client.ports = bpf_htonl(e->ports); /* as they stand in a packet that arrives */
	t.pair = t.other = challenge;
	t.kind = REPLY_ISSUED;
	issued_to_key(&t, reply_hash(&client));
	return reply_may_be(reply_index(&t), reply_hash(&t));
}

/* Whether a challenge may be a cookie of ours or one of the service. */
static __always_inline bool may_be_proof(const struct ends *e, __u32 challenge)
{
	__u64 now = coarse_time();

	if (challenge == NO_CHALLENGE)
		return false;
	/* At the end of a unit the exact clock may be in the next one, of which general() has issued a cookie. */
	return ((now + COOKIE_EDGE) & (BIT(COOKIE_UNIT) - 1)) < COOKIE_EDGE ||
	       client_cookie(e, unit_of(now, challenge), 0, 0) == challenge || may_be_issued(e, challenge);
}

/* Whether a datagram may be answered: may_answer() and make_challenge() would do so, too. Few that they would answer are refused. */
static __always_inline bool answers_datagram(struct xdp_md *ctx, struct segment *s, void *data, void *end, bool v6)
{
	struct udphdr *udp = (void *)s->tcp;
	struct packet p = { .src = s->ends.src, .dst = s->ends.dst, .family = v6 };

	if (!udp->source || (v6 && !udp->check) || is_with_group(data) || !is_shown(data))
		return false;
	if (may_be_no_peer(&p) || is_loopback(p.dst, v6))
		return false;
	if (v6 ? !p.dst.hi || p.dst.hi >> 56 == 0xff : is_unspecified(p.dst, v6) || (__u32)p.dst.lo >> 29 == 7)
		return false;
	return (v6 || !may_be_broadcast(p.dst)) && bpf_xdp_get_buff_len(ctx) == end - data;
}

/* The sum of a word, by halves of 32 bits, for checksum(). */
static __always_inline __u64 word_sum(__u64 word)
{
	return (__u32)word + (word >> 32);
}

/* The sum of both addresses of an IP header, which are in front of the UDP header. */
static __always_inline __u64 addresses_sum(void *l4, bool v6)
{
	__u64 *at = l4, sum = word_sum(at[-1]);

	if (v6)
		sum += word_sum(at[-2]) + word_sum(at[-3]) + word_sum(at[-4]);
	return sum;
}

/* Turns the IP and UDP headers round. `data` is the sum of the bytes behind them; l4 points to UDP, and length is that from there on. */
static __always_inline void return_headers(void *l4, bool v6, __u32 length, __u64 data)
{
	__u64 addresses = addresses_sum(l4, v6);
	struct udphdr *udp = l4;

	if (v6) {
		return_ipv6(l4 - sizeof(struct ipv6hdr), length);
	} else {
		struct iphdr *ip = l4 - sizeof(*ip);

		return_ipv4(ip, length);
		ip->check = checksum(word_sum(*(__u64 *)ip) + *((__u32 *)ip + 2) + addresses);
	}
	return_udp(udp, length);
	udp->check = checksum(addresses + word_sum(*(__u64 *)udp) + bpf_htons(IPPROTO_UDP) + udp->len + data) ?: 0xffff;
}

/* Turns a query into its challenge. s is what read_usual_frame() has read of it. */
static __always_inline int put_challenge(struct xdp_md *ctx, struct segment *s, void *data, void *end, bool v6)
{
	const __u32 length = sizeof(struct udphdr) + A2S_SHORT;
	__u32 cookie = client_cookie(&s->ends, coarse_time() >> COOKIE_UNIT, 0, 0);
	struct a2s_start *m = (void *)s->tcp;
	__u32 by = s->l4 + length - (__u32)(end - data);

	swap_ethernet(data);
	m->kind = A2S_CHALLENGE;
	*(__u32 *)m->challenge = cookie;
	/* Of the mark all bits are set, which adds nothing. */
	return_headers(m, v6, length, word_sum(A2S_CHALLENGE | (__u64)cookie << 8));
	if (by && bpf_xdp_adjust_tail(ctx, by))
		return XDP_DROP;
	count(DECISION(SLOT_REPLIES, VERDICT_PASS), s->l4 + length);
	return XDP_TX;
}

static __always_inline int challenge_usual(struct xdp_md *ctx, bool v6, __u32 decision)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct segment s;
	__u32 challenge;

	if (!read_usual_frame(&s, data, end, v6, sizeof(struct a2s_start)) || !read_usual_query(&s, end, &challenge) ||
	    !answers_datagram(ctx, &s, data, end, v6) || may_be_proof(&s.ends, challenge))
		return QUERY_OTHER;
	count(decision, end - data);
	watch_traffic(ctx, decision);
	return may_send(coarse_time()) ? put_challenge(ctx, &s, data, end, v6) : XDP_DROP;
}

/*
 * Counts a query in a usual frame by a decision, and challenges it, if it surely proves nothing. Returns an enum xdp_action, or QUERY_OTHER: the frame
 * is for general(), and nothing has changed. A global function.
 */
__noinline int challenge_query(struct xdp_md *ctx, __u32 v6, __u32 decision)
{
	return v6 ? challenge_usual(ctx, true, decision) : challenge_usual(ctx, false, decision);
}
