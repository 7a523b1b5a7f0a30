/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Queries of game servers (A2S): https://developer.valvesoftware.com/wiki/Server_queries. A server tells who asks a challenge first, and
 * answers a query that has it. During a flood this program does both: its challenge is a cookie of the client's address and port, and a query
 * that has it is answered with the service's own latest answer. gameanswer.h notes those. internal/model/packet/a2s.go defines the messages.
 */
#pragma once

#include "clock.h"
#include "ends.h"
#include "limit.h"
#include "packet.h"
#include "replyflow.h"
#include "siphash.h"

/* Whether the policy protects a service of that protocol. Constant. */
const volatile bool serves;

enum {
	A2S_MARK = 0xffffffff, /* of a datagram that is whole */
	A2S_CHALLENGE = 'A',
	A2S_INFO = 'T', /* queries, */
	A2S_PLAYER = 'U',
	A2S_RULES = 'V',
	A2S_INFO_ANSWER = 'I', /* and their answers */
	A2S_OLD_INFO_ANSWER = 'm',
	A2S_PLAYER_ANSWER = 'D',
	A2S_RULES_ANSWER = 'E',

	A2S_LEAST = 5,              /* bytes, of a message */
	A2S_SHORT = 9,              /* of one that has a challenge behind its kind, */
	A2S_INFO_SHORT = 25,        /* of a query for INFO without one, */
	A2S_INFO_LONG = 29,         /* and with it */
	A2S_MOST = 1400,            /* of an answer that is kept */
	A2S_SUM_PART = 512,         /* the most that bpf_csum_diff() sums up at a time (kernel/bpf, MAX_BPF_STACK) */
	A2S_SPACE = 2048,           /* see known_length() */
	A2S_HAS_CHALLENGE = 1 << 8, /* beside a query's kind */
	A2S_COOKIE_UNIT = 36, /* bits of nanoseconds, 69 s: a cookie holds for as long, and at most for twice as long */
};

#define A2S_FRESH \
	5000000000ULL /* nanoseconds for which an answer is served, before one query in A2S_RETRY goes to the service, */
#define A2S_OLD 60000000000ULL /* and after which none is served */
#define A2S_RETRY 1000000000ULL
#define A2S_WAIT 2000000000ULL /* for a challenge of the service */

/* A UDP header, and how a message begins. */
struct a2s_start {
	__be16 sport;
	__be16 dport;
	__be16 length;
	__be16 check;
	__u32 mark;
	__u8 kind;
	__u8 challenge[4];
} __attribute__((packed));

/* Of which service an answer is, and to which kind of query. */
struct a2s_key {
	struct address service;
	__u32 port;
	__u32 kind;
};

struct a2s_answer {
	__u64 at;     /* when it left, in nanoseconds of CLOCK_MONOTONIC, */
	__u64 tried;  /* and when a query was last sent for another one */
	__u32 length; /* bytes */
	__u32 sum;    /* of its 16-bit words (RFC 1071) */
	__u8 data[A2S_SPACE + 8];
};

/*
 * An entry that is replaced while a CPU copies it gives a datagram with a wrong checksum, which its receiver discards. The map has entries of services
 * alone, so none has to give way. One with LRU would keep 128 free entries for each CPU (kernel/bpf/bpf_lru_list.c).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct a2s_key);
	__type(value, struct a2s_answer);
} game_answers SEC(".maps");

/* A client whose queries with a cookie went to a service, which knows nothing of cookies and may answer with a challenge of its own. */
struct a2s_client {
	struct address address;
	struct address service;
	__u32 ports; /* of the client, and in the upper half of the service */
	__u32 unused;
};

struct a2s_query {
	__u64 until; /* nanoseconds of CLOCK_MONOTONIC: they may be answered with a challenge */
	__u64 kinds; /* a byte each, the last one lowest */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct a2s_client);
	__type(value, struct a2s_query);
} game_queries SEC(".maps");

static __always_inline __u32 word_of(const __u8 bytes[4])
{
	return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (__u32)bytes[3] << 24;
}

/* Whether a query for INFO has the text that belongs to it, at an offset. */
static __always_inline bool has_info_text(struct xdp_md *ctx, __u32 at)
{
	const __u8 want[20] = "Source Engine Query";
	__u32 text[5];

	if (bpf_xdp_load_bytes(ctx, at, text, sizeof(text)))
		return false;
#pragma unroll
	for (int i = 0; i < 5; i++)
		if (text[i] != word_of(want + 4 * i))
			return false;
	return true;
}

/*
 * Reads a query of so many bytes behind the UDP header, which begins at l4. Returns its kind, and if it has a challenge A2S_HAS_CHALLENGE and that
 * in the upper half; 0 for another datagram. A global function.
 */
__noinline __u64 read_query(struct xdp_md *ctx, __u32 l4, __u32 length)
{
	__u32 payload = l4 + sizeof(struct udphdr);
	struct a2s_start s = {};
	__u8 challenge[4];

	if (length < A2S_SHORT || bpf_xdp_load_bytes(ctx, l4, &s, offsetof(struct a2s_start, challenge) + 4) ||
	    s.mark != A2S_MARK)
		return 0;
	if (s.kind == A2S_INFO) {
		if ((length != A2S_INFO_SHORT && length != A2S_INFO_LONG) || !has_info_text(ctx, payload + A2S_LEAST))
			return 0;
		if (length == A2S_INFO_SHORT)
			return A2S_INFO;
		if (bpf_xdp_load_bytes(ctx, payload + A2S_INFO_SHORT, challenge, sizeof(challenge)))
			return 0;
		return A2S_INFO | A2S_HAS_CHALLENGE | (__u64)word_of(challenge) << 32;
	}
	if ((s.kind != A2S_PLAYER && s.kind != A2S_RULES) || length != A2S_SHORT)
		return 0;
	return s.kind | A2S_HAS_CHALLENGE | (__u64)word_of(s.challenge) << 32;
}

/* How many bytes of a UDP packet follow its header. */
static __always_inline __u32 datagram_length(struct packet *p)
{
	return p->payload && p->end > p->payload ? p->end - p->payload : 0;
}

/* The query of a packet, as read_query() has it. */
static __always_inline __u64 query_of(struct xdp_md *ctx, struct packet *p)
{
	return p->payload ? read_query(ctx, p->l4, datagram_length(p)) : 0;
}

/*
 * The cookie of a packet's source, for a number of A2S_COOKIE_UNITs since the system started, of which it has the lowest bit. The keys of the table
 * of replies are secret, and stay.
 */
static __always_inline __u32 a2s_cookie(struct packet *p, __u64 unit)
{
	struct reply_secrets *k = reply_secrets();
	__u64 key[2] = { k->address[0], k->address[1] };
	struct siphash h = siphash_begin(key);

	siphash13_add(&h, p->src.hi);
	siphash13_add(&h, p->src.lo);
	siphash13_add(&h, p->dst.hi ^ unit);
	siphash13_add(&h, p->dst.lo);
	return (siphash13_end(&h, (p->sport & 0xffff) | (__u64)(p->port & 0xffff) << 16, 36) & ~1U) | (unit & 1);
}

/* Whether a query has a cookie of its source that holds: of this unit of time or the one before. A global function. */
__noinline __u32 has_cookie(struct packet *p, __u64 query)
{
	__u32 challenge = query >> 32;
	__u64 unit;

	if (!p || !(query & A2S_HAS_CHALLENGE) || p->seen & SEEN_NO_COOKIE)
		return 0;
	if (p->seen & SEEN_COOKIE)
		return 1;
	unit = time_of(p) >> A2S_COOKIE_UNIT;
	unit -= (unit ^ challenge) & 1;
	if (a2s_cookie(p, unit) == challenge) {
		p->seen |= SEEN_COOKIE;
		return 1;
	}
	p->seen |= SEEN_NO_COOKIE;
	return 0;
}

/* The answer to a kind of query at the service that a packet is for; NULL if there is none. */
static __always_inline struct a2s_answer *answer_of(struct packet *p, __u32 kind)
{
	struct a2s_key key = { .service = p->dst, .port = p->port & 0xffff, .kind = kind & 0xff };

	return bpf_map_lookup_elem(&game_answers, &key);
}

/*
 * Whether a packet is a query that is answered from here: it has a cookie, and there is an answer that is not too old. After
 * A2S_FRESH one query a second goes to the service, so that it gives another. A global function.
 */
__noinline __u32 is_served(struct xdp_md *ctx, struct packet *p)
{
	struct a2s_answer *a;
	__u64 query, now, at;

	if (!p)
		return 0;
	query = query_of(ctx, p);
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
