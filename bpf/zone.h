/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Random-subdomain floods: queries for names that do not exist, below a zone that does, so that no cache has the answer. The program at
 * egress learns from responses which names were answered, and which zones are flooded (response.h). While a zone is flooded, queries of
 * clients that are not verified for names below it pass if the name was answered before. Nothing that arrives adds a name or a zone.
 */
#pragma once

#include "bits.h"
#include "clock.h"
#include "dnsmessage.h"
#include "kernel.h"
#include "limit.h"
#include "names.h"
#include "packet.h"
#include "siphash.h"
#include "verifier.h"
#include "verify.h"

/* The bit of packet.dns_names for a name below a flooded zone that was not answered; 0: no rule asks. A constant to the verifier. */
const volatile __u32 unanswered_bit;

#define ZONE_TIME 10000000000ULL /* nanoseconds for which a zone is flooded after a limit was exceeded */
#define ZONE_RENEW 1000000000ULL /* nanoseconds after which an exceeded limit is noted again */

enum {
	ZONE_DEPTH_LEAST = 2, /* labels of a zone; below zones with fewer, names that do not exist are usual */
	ZONE_DEPTH_MOST = 20, /* a /64 below ip6.arpa has 18 */
	ZONE_DEPTHS = 32,     /* a power of two above ZONE_DEPTH_MOST */
	ZONE_NAME = 64,
	ZONES = 1024,
	ZONE_PROBES = 4,

	ANSWERED_SLOTS = 8,
	ANSWERED_SEEN_BITS = 16, /* of a word: when the name was last answered, in units of 2^32 ns */
	ANSWERED_LIFE = 20116,   /* the units for which a name is remembered: 24 hours */
	ANSWERED_TAG_SHIFT = 17,
};

/* Of a word: the name was answered again in a later unit. */
#define ANSWERED_AGAIN BIT(ANSWERED_SEEN_BITS)

/* The key of the hashes of names. until[n]: when the last flood of a zone of n labels ends, until[0]: of any zone, in ns of CLOCK_MONOTONIC. */
struct zone_times {
	__u64 key[2];
	__u64 until[ZONE_DEPTHS];
};

struct zone_times zone_times[1] SEC(".data.zones");

/* A zone that is or was flooded. */
struct zone {
	__u64 hash;
	__u64 until;
	__u32 depth;          /* labels */
	__u32 length;         /* bytes of the name, which may be longer than what is kept */
	__u8 name[ZONE_NAME]; /* as in a message, for user space */
};

/* A zone is in one of ZONE_PROBES consecutive places. Its hash gives the first of them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct zone);
} flooded_zones SEC(".maps");

/* Names that were answered: a tag of the hash, ANSWERED_AGAIN, and when; 0: the slot is empty. */
struct answered_bucket {
	__u64 word[ANSWERED_SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answered_bucket);
} answered_names SEC(".maps");

/* The number of buckets of answered_names, a power of two, minus 1. A constant to the verifier. */
const volatile __u32 answered_mask;

static __always_inline struct answered_bucket *answered_bucket(__u64 hash)
{
	__u32 at = hash & answered_mask;

	return bpf_map_lookup_elem(&answered_names, &at);
}

/* The tag of a word, or of a hash. Never 0. */
static __always_inline __u64 answered_tag(__u64 word)
{
	return word >> ANSWERED_TAG_SHIFT | 1;
}

static __always_inline __u32 answered_age(__u64 word, __u64 now)
{
	return ((now >> 32) - word) & (BIT(ANSWERED_SEEN_BITS) - 1);
}

static __always_inline bool is_remembered(__u64 word, __u64 now)
{
	return word && answered_age(word, now) <= ANSWERED_LIFE;
}

/* The slot of a name, ANSWERED_SLOTS if the name is not remembered. */
static __always_inline __u32 answered_slot(struct answered_bucket *b, __u64 hash, __u64 now)
{
#pragma nounroll
	for (__u32 i = 0; i < ANSWERED_SLOTS; i++) {
		__u64 word = read_once(&b->word[i]);

		if (answered_tag(word) == answered_tag(hash) && is_remembered(word, now))
			return i;
	}
	return ANSWERED_SLOTS;
}

/* Whether the name of that hash was answered. A global function. */
__noinline __u32 is_answered(__u64 hash, __u64 now)
{
	struct answered_bucket *b = answered_bucket(hash);

	return b && answered_slot(b, hash, now) < ANSWERED_SLOTS;
}

/* Hashes the labels of a name from the number `from` to the one before `end`. The last label of the name is number 1. A global function. */
__noinline int hash_labels(struct dns_message *m, __u32 from, __u32 end)
{
	if (!m)
		return 0;
	for (__u32 i = 0; i < DNS_LABELS_MAX; i++) {
		if (from + i >= end || from + i > m->labels)
			break;
		hash_label(m, DNS_NAME_AT + m->label[(m->labels - from - i) & DNS_LABELS_MAX]);
	}
	return 0;
}

static __always_inline void begin_name(struct dns_message *m)
{
	__u64 key[2] = { zone_times->key[0], zone_times->key[1] };

	m->hash = siphash_begin(key);
}

/* Charges the hash of a name to a limit: the hash takes the place of an address. Returns whether the limit is exceeded. */
static __always_inline __u32 charge_name(struct dns_message *m, __u64 hash, __u32 limit)
{
	m->charge.now = 0;
	m->charge.src.hi = hash;
	m->charge.src.lo = ~hash;
	m->charge.dst.hi = m->charge.dst.lo = 0;
	return charge_limit(&m->charge, limit, TRAIT_IPV6 | TRAIT_KEEP);
}

/* The number of the place of a flooded zone, ZONES if the zone is not flooded. A global function. */
__noinline __u32 flooded_zone(__u64 hash, __u64 now)
{
	for (__u32 i = 0; i < ZONE_PROBES; i++) {
		__u32 at = (hash + i) & (ZONES - 1);
		struct zone *z = bpf_map_lookup_elem(&flooded_zones, &at);

		if (z && read_once(&z->hash) == hash && read_once(&z->until) > now)
			return at;
	}
	return ZONES;
}

/* Sets the end of a zone's flood to ZONE_TIME from now. */
static __always_inline void extend_flood(struct zone *z, __u64 now)
{
	__u64 until = now + ZONE_TIME;

	z->until = until;
	zone_times->until[z->depth & (ZONE_DEPTHS - 1)] = until;
	zone_times->until[0] = until;
}

/*
 * Charges a refused query for a flooded zone to the limit above which the flood goes on. It does so only when the end of the flood may
 * have to be extended. A global function.
 */
__noinline __u32 flood_continues(struct dns_message *m, __u32 at, __u64 now, __u32 limit)
{
	struct zone *z = bpf_map_lookup_elem(&flooded_zones, &at);

	if (!m || !z || read_once(&z->until) > now + ZONE_TIME - ZONE_RENEW || !charge_name(m, z->hash, limit))
		return 0;
	extend_flood(z, now);
	return 0;
}

/*
 * Hashes the next label of a name. depth is the number of labels that are then hashed. If they are a flooded zone, notes that zone. A
 * global function, which the verifier checks once and not for each label.
 */
__noinline int hash_zone_label(struct dns_message *m, __u32 depth, __u64 now)
{
	__u32 found;

	if (!m)
		return 0;
	hash_label(m, DNS_NAME_AT + m->label[(m->labels - depth) & DNS_LABELS_MAX]);
	if (depth < ZONE_DEPTH_LEAST || read_once(&zone_times->until[depth & (ZONE_DEPTHS - 1)]) <= now)
		return 0;
	found = flooded_zone(hash_of(m->hash), now);
	if (found < ZONES)
		m->zone = found;
	return 0;
}

/* Whether the name of a query at a guard with names is below a flooded zone, and was not answered. A global function. */
__noinline __u32 name_unanswered(struct packet *p, struct dns_message *m)
{
	struct guard *guard;
	__u32 depth;
	__u64 now;

	if (!p || !m)
		return 0;
	now = time_of(p);
	if (read_once(&zone_times->until[0]) <= now)
		return 0;
	guard = guard_of(p->port);
	if (!guard || !(guard->flags & GUARD_NAMES)) /* it has no limits of names */
		return 0;
	begin_name(m);
	m->zone = ZONES;
	for (depth = 1; depth <= ZONE_DEPTH_MOST; depth++) {
		if (depth >= m->labels)
			break;
		hash_zone_label(m, depth, now);
	}
	if (m->zone >= ZONES)
		return 0;
	hash_labels(m, depth, DNS_LABELS_MAX + 1);
	if (is_answered(hash_of(m->hash), now))
		return 0;
	if (traits_of(p) & TRAIT_KEEP)
		flood_continues(m, m->zone, now, guard->go_on);
	return 1;
}
