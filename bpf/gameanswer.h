/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Keeps the latest answers of a game server (a2s.h), from the packets that leave. */
#pragma once

#include "a2s.h"
#include "datagram.h"
#include "flood.h"
#include "turnback.h"

#define A2S_KEEP 1000000000ULL /* nanoseconds for which an answer is not replaced: the copy costs more than the rest */

/* An answer on its way into the map: it is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct a2s_answer);
} game_answer SEC(".maps");

/* The kind of query to which a kind of message is the answer; 0: it is no answer. */
static __always_inline __u32 kind_asked(__u8 answer)
{
	switch (answer) {
	case A2S_INFO_ANSWER:
	case A2S_OLD_INFO_ANSWER:
		return A2S_INFO;
	case A2S_PLAYER_ANSWER:
		return A2S_PLAYER;
	case A2S_RULES_ANSWER:
		return A2S_RULES;
	}
	return 0;
}

/* Keeps an answer of size bytes at the offset payload of a packet. */
static __always_inline void keep_answer(struct __sk_buff *skb, struct service_key *key, __u32 payload, __u32 size,
					__u64 now)
{
	struct a2s_answer *a;
	__u32 zero_key = 0, bytes = size;
	__s64 sum = 0;

	a = bpf_map_lookup_elem(&game_answer, &zero_key);
	if (!a || !size || size > A2S_MOST)
		return;
	size = known_length(size, A2S_SPACE);
	if (bpf_skb_load_bytes(skb, payload, a->data, size))
		return;
#pragma unroll
	for (int i = 0; i < 3; i++) /* what fills the last word of the sum */
		a->data[size + i] = 0;
	size = (size + 3) & ~3;
#pragma unroll
	for (__u32 from = 0; from < A2S_MOST; from += A2S_SUM_PART)
		if (size > from)
			sum = bpf_csum_diff(
				NULL, 0, (void *)(a->data + from),
				known_length(size - from < A2S_SUM_PART ? size - from : A2S_SUM_PART, A2S_SUM_PART),
				sum);
	a->at = now;
	a->tried = 0;
	a->length = bytes;
	a->sum = sum;
	bpf_map_update_elem(&game_answers, key, a, BPF_ANY);
}

/* The queries with a cookie to which a client expects the service's answer; NULL if there are none. l4 is the offset of the UDP header of the answer. */
static __always_inline struct a2s_query *waiting_queries(struct __sk_buff *skb, __u32 l4)
{
	struct service_client c = {};
	struct a2s_query *q;

	if (!read_client(skb, l4, &c))
		return NULL;
	q = bpf_map_lookup_elem(&game_queries, &c);
	return q && read_once(&q->until) >= bpf_ktime_get_ns() ? q : NULL;
}

/* Notes that the oldest query of a kind in q is answered. */
static __always_inline void note_answered(struct a2s_query *q, __u32 kind)
{
	__u64 kinds = q->kinds;

	for (int shift = 56; shift >= 0; shift -= 8)
		if ((kinds >> shift & 0xff) == kind) {
			q->kinds = kinds & ~(0xffULL << shift);
			break;
		}
}

/*
 * Whether an answer is the service's own. Either this host sent it, or it goes to a client whose queries with a cookie went to the service (q). Any
 * other answer is forwarded, and may be forged by a sender who knows a route through this host.
 */
static __always_inline bool is_own_answer(struct __sk_buff *skb, struct a2s_query *q)
{
	__u32 from = skb->ingress_ifindex;

	return !from || (from != skb->ifindex && q);
}

/* Keeps a leaving packet if it is an answer of a game server. l4 is the offset of its UDP header. A global function. */
__noinline __u32 keep_game_answer(struct __sk_buff *skb, __u32 l4)
{
	const __u32 least = offsetof(struct a2s_start, challenge);
	struct a2s_start s = {};
	struct a2s_answer *old;
	struct service_key key = {};
	struct a2s_query *q;
	struct address to;
	__u32 number, length;
	struct flood *f;
	__u64 now;

	if (bpf_skb_load_bytes(skb, l4, &s, least))
		return 0;
	f = flood_of_port(s.sport, &number);
	if (!f || f->protocol != DATAGRAMS_A2S)
		return 0;
	length = bpf_ntohs(s.length) - sizeof(struct udphdr);
	key.kind = kind_asked(s.kind);
	if (s.mark != A2S_MARK || length > 0xffff || !key.kind || !datagram_ends(skb, l4, &key.service, &to))
		return 0;
	key.port = opaque(bpf_ntohs(s.sport)) & 0xffff;
	q = waiting_queries(skb, l4);
	if (q)
		note_answered(q, key.kind);
	now = bpf_ktime_get_ns();
	old = bpf_map_lookup_elem(&game_answers, &key);
	if ((!old || read_once(&old->at) + A2S_KEEP <= now) && is_own_answer(skb, q))
		keep_answer(skb, &key, l4 + sizeof(struct udphdr), length, now);
	return 0;
}

/*
 * The kind of the query to which the service now sends a challenge: the oldest of the client's queries with a cookie that went to the service. 0 if
 * there is none. Each query is returned once. A global function.
 */
__noinline __u32 query_challenged(struct __sk_buff *skb, __u32 l4)
{
	struct a2s_query *q = waiting_queries(skb, l4);
	__u32 shift = 56;
	__u64 kinds;

	if (!q)
		return 0;
	kinds = q->kinds;
	for (int i = 0; i < 7; i++)
		if (!(kinds >> shift & 0xff))
			shift -= 8;
	q->kinds = kinds & ~(0xffULL << (shift & 63));
	return kinds >> (shift & 63) & 0xff;
}

/*
 * Turns a challenge of the service into the client's query with that challenge, and gives the query to the service. The client has answered this
 * program's challenge, and many clients accept only one. Returns a verdict. A global function, like guard_leaving().
 */
__noinline int turn_challenge(struct __sk_buff *skb, __u32 kind)
{
	const __u32 head = offsetof(struct a2s_start, challenge) - sizeof(struct udphdr);
	struct turned m = {};
	__u8 challenge[4];

	if (bpf_skb_load_bytes(skb, turned_l4(skb) + offsetof(struct a2s_start, challenge), challenge,
			       sizeof(challenge)))
		return TCX_NEXT;
	set_word(m.data, A2S_MARK);
	m.data[A2S_LEAST - 1] = kind;
	if (kind == A2S_INFO) {
		__builtin_memcpy(m.data + head, "Source Engine Query", A2S_INFO_SHORT - A2S_LEAST);
		__builtin_memcpy(m.data + A2S_INFO_SHORT, challenge, sizeof(challenge));
	} else {
		__builtin_memcpy(m.data + head, challenge, sizeof(challenge));
	}
	return turn_back(skb, &m, kind == A2S_INFO ? A2S_INFO_LONG : A2S_SHORT);
}
