/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Challenges usual queries at a game server. The generated entry calls it. During a flood nearly all queries are forged, without a
 * challenge or with a wrong one. This code finds and challenges them with a fifth of the instructions that general() takes. The cookie is the
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

enum { QUERY_OTHER = 0 }; /* not a value of action that this program returns */

#define COOKIE_EDGE (1ULL << 25) /* nanoseconds, 34 ms: the coarse clock is late by less than that */

/* The text of a query for INFO: "Source Engine Query" with the zero behind it, in words of a little-endian machine. */
#define INFO_TEXT1 0x4520656372756f53
#define INFO_TEXT2 0x755120656e69676e
#define INFO_TEXT3 0x00797265

static __always_inline bool is_info_text(const __u8 *at)
{
	return *(__u64 *)at == INFO_TEXT1 && *(__u64 *)(at + 8) == INFO_TEXT2 && *(__u32 *)(at + 16) == INFO_TEXT3;
}

/* Reads the challenge of a query, like read_query(); NO_CHALLENGE if it has none. Returns false for a datagram that is no query or is cut short. */
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

/* Whether the service may have issued a challenge to a client. For most forged challenges, the filters of the table of replies exclude it. */
static __always_inline bool may_be_issued(const struct ends *e, __u32 challenge)
{
	struct reply_key client = { .kind = REPLY_UDP }, t = {};
	struct address other = e->src, own = e->dst;

	reply_ends_of(&client, &other, &own, e->v6);
	client.ports = bpf_htonl(e->ports); /* as in a packet that arrives */
	t.pair = challenge;
	t.kind = REPLY_ISSUED;
	issued_to_key(&t, reply_hash(&client));
	return reply_may_be(reply_index(&t), reply_hash(&t));
}

/* Whether a challenge may be a cookie of this program or a challenge of the service. */
static __always_inline bool may_be_proof(const struct ends *e, __u32 challenge)
{
	__u64 now = coarse_time();

	if (challenge == NO_CHALLENGE)
		return false;
	/* At the end of a unit of time, the exact clock may be in the next unit, and general() may have issued a cookie of that one. */
	return ((now + COOKIE_EDGE) & (BIT(COOKIE_UNIT) - 1)) < COOKIE_EDGE ||
	       client_cookie(e, unit_of(now, challenge), 0, 0) == challenge || may_be_issued(e, challenge);
}

/* Whether a datagram may be answered. Then may_answer() and make_challenge() allow it, too. It refuses a few datagrams that they allow. */
static __always_inline bool answers_datagram(context *ctx, struct segment *s, void *data, void *end, bool v6)
{
	struct udphdr *udp = (void *)s->tcp;
	struct packet p = { .src = s->ends.src, .dst = s->ends.dst, .family = v6 };

	if (!udp->source || (v6 && !udp->check) || is_with_group(data) || !is_shown(data))
		return false;
	if (may_be_no_peer(&p) || is_loopback(p.dst, v6))
		return false;
	if (v6 ? !p.dst.hi || p.dst.hi >> 56 == 0xff : is_unspecified(p.dst, v6) || (__u32)p.dst.lo >> 29 == 7)
		return false;
	return (v6 || !may_be_broadcast(p.dst)) && frame_length(ctx) == end - data;
}

/* The sum of the two 32-bit halves of a word, for checksum(). */
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

/* Turns the IP and UDP headers into those of an answer. `data` is the sum of the bytes behind them. length counts from the UDP header, at l4, on. */
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

/* Turns a query into its challenge. read_usual_frame() has filled s. */
static __always_inline int put_challenge(context *ctx, struct segment *s, void *data, void *end, bool v6)
{
	const __u32 length = sizeof(struct udphdr) + A2S_SHORT;
	__u32 cookie = client_cookie(&s->ends, coarse_time() >> COOKIE_UNIT, 0, 0);
	struct a2s_start *m = (void *)s->tcp;

	swap_ethernet(data);
	m->kind = A2S_CHALLENGE;
	*(__u32 *)m->challenge = cookie;
	/* All bits of the mark are set, so it does not change the sum. */
	return_headers(m, v6, length, word_sum(A2S_CHALLENGE | (__u64)cookie << 8));
	if (set_length(ctx, end - data, s->l4 + length))
		return ACTION_DROP;
	count(DECISION(SLOT_REPLIES, VERDICT_PASS), wire_length(ctx, s->l4 + length));
	return send_back(ctx);
}

static __always_inline int challenge_usual(context *ctx, bool v6, __u32 decision)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct segment s;
	__u32 challenge;

	if (!read_usual_frame(&s, data, end, v6, sizeof(struct a2s_start)) || !read_usual_query(&s, end, &challenge) ||
	    !answers_datagram(ctx, &s, data, end, v6) || may_be_proof(&s.ends, challenge))
		return QUERY_OTHER;
	count(decision, frame_bytes(ctx, data, end));
	watch_traffic(ctx, decision);
	return may_send(coarse_time()) ? put_challenge(ctx, &s, data, end, v6) : ACTION_DROP;
}

/*
 * Counts a query in a usual frame by a decision, and challenges it, if it surely proves no address. Returns an action. QUERY_OTHER means that
 * nothing has changed, and that general() must decide. A global function.
 */
__noinline int challenge_query(context *ctx, __u32 v6, __u32 decision)
{
	return v6 ? challenge_usual(ctx, true, decision) : challenge_usual(ctx, false, decision);
}
