/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Queries of game servers (A2S): https://developer.valvesoftware.com/wiki/Server_queries. A server replies to a query with a
 * challenge, and answers only a query that has this challenge. During a flood this program does both. Its challenge is a cookie of the client's address
 * and port. It answers a query that has the cookie with the service's own latest answer (gameanswer.h). internal/model/packet/a2s.go defines the messages.
 */
#pragma once

#include "challenge.h"
#include "clock.h"
#include "packet.h"

/* Whether the policy protects a service of the protocol A2S. Constant. */
const volatile bool serves;

enum {
	A2S_MARK = 0xffffffff, /* the first word of a message in one datagram */
	A2S_CHALLENGE = 'A',
	A2S_INFO = 'T', /* queries */
	A2S_PLAYER = 'U',
	A2S_RULES = 'V',
	A2S_INFO_ANSWER = 'I', /* their answers */
	A2S_OLD_INFO_ANSWER = 'm',
	A2S_PLAYER_ANSWER = 'D',
	A2S_RULES_ANSWER = 'E',

	A2S_LEAST = 5,       /* bytes of the shortest message */
	A2S_SHORT = 9,       /* bytes of a message with a challenge behind its kind */
	A2S_INFO_SHORT = 25, /* bytes of a query for INFO without a challenge */
	A2S_INFO_LONG = 29,  /* bytes of a query for INFO with a challenge */
	A2S_MOST = 1400,     /* bytes of the longest answer that is kept */
	A2S_SUM_PART = 512,  /* the most that bpf_csum_diff() sums up at a time (kernel/bpf, MAX_BPF_STACK) */
	A2S_SPACE = 2048,    /* see known_length() */
};

#define A2S_FRESH \
	5000000000ULL /* nanoseconds in which an answer is served to all; then one query per A2S_RETRY goes to the service */
#define A2S_OLD 60000000000ULL /* nanoseconds after which an answer is no longer served */
#define A2S_RETRY 1000000000ULL
#define A2S_WAIT 2000000000ULL /* nanoseconds in which the service may send a challenge */

/* A UDP header, and the start of a message. */
struct a2s_start {
	__be16 sport;
	__be16 dport;
	__be16 length;
	__be16 check;
	__u32 mark;
	__u8 kind;
	__u8 challenge[4];
} __attribute__((packed));

struct a2s_answer {
	__u64 at;     /* when the answer left, in nanoseconds of CLOCK_MONOTONIC */
	__u64 tried;  /* when a query was last sent to the service for a new answer */
	__u32 length; /* bytes */
	__u32 sum;    /* the sum of its 16-bit words (RFC 1071) */
	__u8 data[A2S_SPACE + 8];
};

/*
 * If an entry is replaced while a CPU copies it, the datagram has a wrong checksum, and its receiver discards it. The map has entries for services
 * only, so no entry must be evicted. A map with LRU would keep 128 free entries for each CPU (kernel/bpf/bpf_lru_list.c).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct service_key);
	__type(value, struct a2s_answer);
} game_answers SEC(".maps");

/* A client's queries with a cookie that went to a service. The service does not know the cookie, and may answer with its own challenge. */
struct a2s_query {
	__u64 until; /* nanoseconds of CLOCK_MONOTONIC until which the service may answer with a challenge */
	__u64 kinds; /* the kinds of the queries, a byte each, the latest in the lowest byte */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct service_client);
	__type(value, struct a2s_query);
} game_queries SEC(".maps");

/* Whether the text that a query for INFO must have is at an offset of the frame. */
static __always_inline bool has_info_text(context *ctx, __u32 at)
{
	const __u8 want[20] = "Source Engine Query";
	__u32 text[5];

	if (load_frame(ctx, at, text, sizeof(text)))
		return false;
#pragma unroll
	for (int i = 0; i < 5; i++)
		if (text[i] != word_of(want + 4 * i))
			return false;
	return true;
}

/* The number of a query, by its kind and challenge. */
static __always_inline __u64 query_number(__u32 kind, __u32 challenge)
{
	return challenge == NO_CHALLENGE ? kind : kind | HAS_CHALLENGE | (__u64)challenge << 32;
}

/*
 * Reads a query of length bytes behind the UDP header at l4. Returns its kind; if the query has a challenge, also HAS_CHALLENGE, and the challenge
 * in the upper half. Returns 0 for any other datagram. A global function.
 */
__noinline __u64 read_query(context *ctx, __u32 l4, __u32 length)
{
	__u32 payload = l4 + sizeof(struct udphdr);
	struct a2s_start s = {};
	__u8 challenge[4];

	if (length < A2S_SHORT || load_frame(ctx, l4, &s, offsetof(struct a2s_start, challenge) + 4) ||
	    s.mark != A2S_MARK)
		return 0;
	if (s.kind == A2S_INFO) {
		if ((length != A2S_INFO_SHORT && length != A2S_INFO_LONG) || !has_info_text(ctx, payload + A2S_LEAST))
			return 0;
		if (length == A2S_INFO_SHORT)
			return A2S_INFO;
		if (load_frame(ctx, payload + A2S_INFO_SHORT, challenge, sizeof(challenge)))
			return 0;
		return query_number(A2S_INFO, word_of(challenge));
	}
	if ((s.kind != A2S_PLAYER && s.kind != A2S_RULES) || length != A2S_SHORT)
		return 0;
	return query_number(s.kind, word_of(s.challenge));
}

/* The query of a packet to a game server, as read_query() returns it. */
static __always_inline __u64 a2s_query(context *ctx, struct packet *p)
{
	return p->payload ? read_query(ctx, p->l4, datagram_length(p)) : 0;
}

/* The answer to a kind of query at the service that a packet is for; NULL if there is none. */
static __always_inline struct a2s_answer *answer_of(struct packet *p, __u32 kind)
{
	struct service_key key = { .service = p->dst, .port = p->port & 0xffff, .kind = kind & 0xff };

	return bpf_map_lookup_elem(&game_answers, &key);
}

/*
 * Whether a packet is a query that this program answers: it has a cookie, and there is an answer that is not too old. After
 * A2S_FRESH, one query a second goes to the service instead, so that the service sends a new answer. A global function.
 */
__noinline __u32 is_served(context *ctx, struct packet *p)
{
	struct a2s_answer *a;
	__u64 query, now, at;

	if (!p)
		return 0;
	query = a2s_query(ctx, p);
	if (!has_cookie(p, query))
		return 0;
	a = answer_of(p, query);
	if (!a)
		return 0;
	now = time_of(p);
	at = read_once(&a->at);
	if (now > at + A2S_OLD)
		return 0;
	if (now <= at + A2S_FRESH || now <= read_once(&a->tried) + A2S_RETRY)
		return 1;
	if (traits_of(p) & TRAIT_KEEP)
		a->tried = now;
	return 0;
}
