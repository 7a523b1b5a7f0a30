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
#include "offence.h"
#include "packet.h"
#include "payload.h"
#include "replyarriving.h"

struct payload_match {
	__u64 patterns; /* any of these, a bit each; 0: none is asked for */
	__u16 at;       /* the first of the places, */
	__u16 places;   /* and how many there are, all of which must hold */
	__u16 asked;    /* 0: this match asks for nothing */
	__u16 not;
};

enum {
	MAX_LAYERS = 8, /* limits of one rule */
	MAX_SOURCES = 4,
	CONDITION_OBSERVE = 1,
	CONDITION_REPLY = 2, /* the packet must be a reply (replyflow.h) */
};

struct source {
	struct address prefix;
	struct address mask;
};

struct condition {
	struct payload_match payload[2];
	__u32 names;    /* the query's name must be in any of these sets, a bit each; 0: not asked for */
	__u32 no_names; /* and in none of these */
	__u32 limit;    /* the first limit, */
	__u32 layers;   /* and how many there are, one of which must be exceeded */
	__u32 flags;
	__u32 slot;   /* to count in, with CONDITION_OBSERVE */
	__u32 proved; /* and 1: the first of as many limits, to which only packets that are proved are charged; 0: none */
	__u32 sources; /* how many prefixes there are, one of which must have the source; 0: any source will do */
	__u16 asks;    /* about a flood: enum flood_question; */
	__u16 flood;   /* and its number */
	__u32 until;   /* second of CLOCK_MONOTONIC from which on it does not hold; 0: it has no end */
	struct source source[MAX_SOURCES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct condition);
} conditions SEC(".maps");

static __always_inline bool payload_holds(struct xdp_md *ctx, struct packet *p, struct payload_match *m)
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
 * Charges a packet that is proved to the limits by which bans are judged: as many as those of the condition that it was charged to, and the
 * one that it exceeds. Packets that anybody may have sent use up the limits of the condition, but not these. So a sender offends only
 * if what is proved to be his is too much by itself. Packets over the limit are examined at a bounded rate, since they cost
 * nothing else. A global function, like condition_holds().
 */
__noinline __u32 judge_sender(struct xdp_md *ctx, struct packet *p, __u32 number, __u32 layer)
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

static __always_inline bool any_limit_exceeded(struct xdp_md *ctx, struct packet *p, struct condition *c, __u32 number)
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

/* Whether what a rule asks about floods holds. */
static __always_inline bool flood_holds(struct xdp_md *ctx, struct packet *p, struct condition *c)
{
	switch (c->asks) {
	case ASKS_KNOWN:
		return known_client(ctx, p, c->flood);
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

/* A global function, for which the argument might be null. */
__noinline __u32 condition_holds(struct xdp_md *ctx, struct packet *p, __u32 number)
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
	if (c->flags & CONDITION_REPLY && !packet_is_reply(ctx, p))
		return 0;
	if (floods && !flood_holds(ctx, p, c))
		return 0;
	if (c->layers && !any_limit_exceeded(ctx, p, c, number))
		return 0;
	if (!(c->flags & CONDITION_OBSERVE))
		return 1;
	if (!(p->seen & SEEN_QUESTION))
		count(DECISION(c->slot, VERDICT_PASS), p->bytes);
	return 0;
}
