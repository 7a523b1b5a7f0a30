/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Conditions of rules beyond addresses and fields: names in DNS queries, payload, limits. Generated code calls
 * condition_holds() when all else matches. internal/compile/xdp/condition.go fills the map.
 */
#pragma once

#include "client.h"
#include "count.h"
#include "decision.h"
#include "dynamic.h"
#include "flood.h"
#include "limit.h"
#include "newcomer.h"
#include "offence.h"
#include "packet.h"
#include "payload.h"
#include "replyarriving.h"

struct payload_match {
	__u64 patterns; /* the payload must have any of these, one bit each; 0: it needs none */
	__u16 at;       /* the number of the first place */
	__u16 places;   /* the number of places; all must match */
	__u16 asked;    /* 0: this match asks for nothing */
	__u16 not;
};

enum {
	MAX_SOURCES = 4,
	CONDITION_OBSERVE = 1,
	CONDITION_REPLY = 2, /* the packet must be a reply (replyflow.h) */
	CONDITION_SPARE = 4, /* together with CONDITION_REPLY: the packet must not be a reply */
};

struct source {
	struct address prefix;
	struct address mask;
};

struct condition {
	struct payload_match payload[2];
	__u32 names;    /* the query's name must be in one of these sets, one bit each; 0: any name */
	__u32 no_names; /* the query's name must be in none of these sets */
	__u32 limit;    /* the number of the first limit */
	__u32 layers;   /* the number of limits; the packet must exceed one; 0: no limits */
	__u32 flags;
	__u32 slot;    /* where CONDITION_OBSERVE counts */
	__u32 proved;  /* 1 + the first of as many limits, only for packets with a proved source; 0: none */
	__u32 sources; /* the number of prefixes in source; one must contain the source address; 0: all addresses */
	__u16 asks;    /* a question about a flood: enum flood_question */
	__u16 flood;   /* the number of the flood */
	__u32 until;   /* the second of CLOCK_MONOTONIC at which the condition ceases to hold; 0: never */
	struct source source[MAX_SOURCES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct condition);
} conditions SEC(".maps");

static __always_inline bool payload_holds(context *ctx, struct packet *p, struct payload_match *m)
{
	return !m->asked || payload_matches(ctx, p, m->patterns, m->at, m->places) == !m->not;
}

/* The first limit that the packet exceeds, counted from 0 among those of the condition; MAX_LAYERS when it exceeds none. */
static __always_inline __u32 exceeded_layer(struct packet *p, struct condition *c)
{
	for (__u32 i = 0; i < MAX_LAYERS; i++) {
		if (i >= c->layers)
			break;
		if (limit_exceeded(p, c->limit + i)) {
			p->exceeded = c->limit + i + 1;
			return i;
		}
	}
	return MAX_LAYERS;
}

/*
 * Charges a packet with a proved source to the limits that decide bans. The condition has one of these for each of its own limits. The packet
 * is charged to the first ones, up to the one for the limit that it exceeds. Packets with a spoofed source use up only the condition's own
 * limits. So a sender offends only if the packets that are proved to be from it exceed a limit by themselves. Packets over a limit are
 * examined at a bounded rate, because they cost nothing else. A global function, like condition_holds().
 */
__noinline __u32 judge_sender(context *ctx, struct packet *p, __u32 number, __u32 layer)
{
	struct condition *c = bpf_map_lookup_elem(&conditions, &number);

	if (!p || !c || !(traits_of(p) & TRAIT_KEEP))
		return 0;
	if (layer < MAX_LAYERS) {
		if (!may_report(p))
			return 0;
		p->seen |= SEEN_EXAMINED;
	}
	if (!in_connection(ctx, p))
		return 0;
	for (__u32 i = 0; i < MAX_LAYERS; i++) {
		if (i >= c->layers || i > layer)
			break;
		if (limit_exceeded(p, c->proved - 1 + i) && i == layer)
			p->seen |= SEEN_OFFENDS;
	}
	return 0;
}

static __always_inline bool any_limit_exceeded(context *ctx, struct packet *p, struct condition *c, __u32 number)
{
	__u32 layer = exceeded_layer(p, c);

	if (judging && c->proved)
		judge_sender(ctx, p, number, layer);
	return layer < MAX_LAYERS;
}

/* Whether a query or request is answered with a challenge: it proves nothing, and is no second request of RakNet. */
static __always_inline bool opens(struct packet *p, __u64 query)
{
	return query && !is_second(query) && !proves_query(p, query);
}

/* Whether the answer to the question of a condition about a flood is yes; true when it has no question. */
static __always_inline bool flood_holds(context *ctx, struct packet *p, struct condition *c)
{
	switch (c->asks) {
	case ASKS_KNOWN:
		return known_client(ctx, p, c->flood);
	case ASKS_ANSWERED:
		return goes_on(p, c->flood);
	case ASKS_AGAIN:
		return comes_again(p, c->flood);
	case ASKS_CALM:
		return is_calm(p, c->flood);
	case ASKS_PROVED:
		return is_proved(ctx, p, c->flood);
	case ASKS_SPENT:
		return is_spent(p, c->flood, c->limit);
	case ASKS_STRAY:
		return is_stray(ctx, p, c->flood);
	case ASKS_SERVED:
		return serves && is_served(ctx, p);
	case ASKS_QUERY:
		return challenges && proves_query(p, query_of(ctx, p, c->flood));
	case ASKS_OPENING:
		return challenges && opens(p, query_of(ctx, p, c->flood));
	}
	return true;
}

static __always_inline bool from_source(struct packet *p, struct condition *c)
{
	for (__u32 i = 0; i < MAX_SOURCES; i++) {
		struct source *s = &c->source[i];

		if (i >= c->sources)
			return false;
		if (!(((p->src.hi ^ s->prefix.hi) & s->mask.hi) | ((p->src.lo ^ s->prefix.lo) & s->mask.lo)))
			return true;
	}
	return false;
}

/* Whether a condition holds for a packet. A global function, so the verifier assumes that p may be null. */
__noinline __u32 condition_holds(context *ctx, struct packet *p, __u32 number)
{
	struct condition *c = bpf_map_lookup_elem(&conditions, &number);

	if (!p || !c)
		return 0;
	if (c->until && now_seconds() >= c->until)
		return 0;
	if (c->sources && !from_source(p, c))
		return 0;
	if ((c->names && !(p->dns_names & c->names)) || (p->dns_names & c->no_names))
		return 0;
	if (!payload_holds(ctx, p, &c->payload[0]) || !payload_holds(ctx, p, &c->payload[1]))
		return 0;
	if (c->flags & CONDITION_REPLY && !packet_is_reply(ctx, p) == !(c->flags & CONDITION_SPARE))
		return 0;
	if (floods && !flood_holds(ctx, p, c))
		return 0;
	if (c->layers && !any_limit_exceeded(ctx, p, c, number))
		return 0;
	if (!(c->flags & CONDITION_OBSERVE))
		return 1;
	if (!(p->seen & SEEN_QUESTION))
		count_packet(DECISION(c->slot, VERDICT_PASS), p);
	return 0;
}
