/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Limits: a generic cell rate algorithm (ITU-T I.371, the virtual scheduling form) for each prefix. Its state is one word, the theoretical
 * arrival time: the time at which all charges of the prefix will be paid off. The part of this time that is after now is the debt of the
 * prefix. A packet that would make the debt larger than the burst is over the limit. Such a packet writes nothing. So a flood over the limit
 * does not dirty shared cache lines, and a prefix costs no more writes than its rate.
 *
 * Each limit has a table of buckets of one cache line. A prefix belongs to one bucket. A new prefix takes the first idle slot: a slot without
 * debt says no more than an empty one. If all slots have debts, the new prefix replaces the prefix with the least debt.
 *
 * Time is counted in units of 2^right or 2^-left ns, modulo 2^40. Each limit has the unit with which its burst is at most 2^37 units.
 * A bucket whose last sweep is more than 2^37 units ago is swept before it is used. A sweep empties the idle slots; if the last sweep is more
 * than 2 * 2^37 units ago, it empties all slots. So a word that is not empty is at most 2^37 units ahead of now. A charge after a sweep ends at
 * most 2 * 2^37 units after that sweep, so a sweep never drops a debt. A word counts as a debt when it is up to 2^38 units ahead, because a
 * CPU may read the clock before another CPU does, and write after it. Between the two, the CPU may be stopped for half of the 2^40 units
 * before any word is misread.
 *
 * Several CPUs: a CPU changes a word only by compare and exchange with the value by which it decided. The CPU that loses reads the bucket
 * again, so it sees the winner's charge. Two CPUs that miss the same prefix at once mostly choose the same slot, and the loser then finds the
 * prefix there. Otherwise the prefix gets two words: the first one counts and is charged, the second one expires, and one packet too many
 * has passed.
 */
#pragma once

#include "clock.h"
#include "packet.h"
#include "verifier.h"

enum {
	MAX_LAYERS = 8, /* limits of one rule, or of one service */
	LIMIT_SLOTS = 7,
	LIMIT_TRIES = 32, /* each try that fails means that other packets passed; then the packet is over */
	TIME_BITS = 40,
	DEBT_BITS = 38,
	AMOUNT_BITS = 16,     /* bits of the fraction in limit_info.cost */
	SURE_DEBT = 50000000, /* ns; see surely_exceeded() */
};

#define TIME_MASK ((1ULL << TIME_BITS) - 1)

struct limit_bucket {
	__u64 slot[LIMIT_SLOTS]; /* a tag of the prefix and, in the lower TIME_BITS, when its debt is paid; 0: empty */
	__u64 swept;             /* the time of the last sweep, in ns of CLOCK_MONOTONIC */
};

struct limit_info {
	__u64 cost;  /* the cost of a packet or a bit, in units with AMOUNT_BITS of fraction */
	__u64 most;  /* the largest debt, in units */
	__u64 fresh; /* ns after a sweep in which the bucket needs no other */
	__u32 base;  /* the limit's first bucket */
	__u32 mask;  /* the number of its buckets, a power of two, minus 1 */
	__u8 left;   /* shifts that convert ns to units */
	__u8 right;
	__u8 bits;     /* 1: bits of IP packets count, 0: packets */
	__u8 prefixes; /* 1: each prefix has its own debt, 0: all prefixes share one debt */
	__u32 reserved;
	struct address src[2]; /* masks by family; 0: the address does not count */
	struct address dst[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limit_info);
} limit_info SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limit_bucket);
} limits SEC(".maps");

/* For each limit, how many debts were forgiven because no slot was idle. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} evictions SEC(".maps");

/* Random numbers, new for each generation. Those of limit_mix are odd. */
const volatile __u32 limit_keys[8];
const volatile __u64 limit_mix[2];

/*
 * NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, CRYPTO 1999). If a sender chooses two
 * prefixes and does not know the keys, the sums of these are equal with a probability of 2^-32. The sums of two IPv4 prefixes are never equal:
 * one factor is fixed for IPv4, and a product of 32-bit numbers does not wrap.
 */
static __always_inline __u64 sum_address(struct address a, const volatile __u32 *keys)
{
	__u64 hi = (__u64)((__u32)(a.hi >> 32) + keys[0]) * ((__u32)a.hi + keys[1]);
	__u64 lo = (__u64)((__u32)(a.lo >> 32) + keys[2]) * ((__u32)a.lo + keys[3]);

	return hi + lo;
}

static __always_inline struct address cut(struct address a, struct address *mask)
{
	struct address m = { a.hi & mask->hi, a.lo & mask->lo };
	return m;
}

/*
 * The hash of the prefixes of a packet: the bits from 40 on choose the bucket, the lower 24 are the tag. The
 * generated entry computes the same hash (internal/compile/xdp/entry/limithash.go). A sender who found several prefixes
 * of one bucket could evict debts with a few packets. But he does not know the keys. To learn them, he would
 * have to see which debts are evicted, and he sees only whether his own packets pass. The mixing is that of
 * MurmurHash3, but with secret factors. It hides the structure of the sums: otherwise one collision would lead to
 * others.
 */
static __always_inline __u64 hash_prefixes(struct limit_info *l, struct charged *w, __u32 v6)
{
	__u64 h = sum_address(cut(w->src, &l->src[v6]), limit_keys);

	if (l->dst[v6].hi | l->dst[v6].lo)
		h += sum_address(cut(w->dst, &l->dst[v6]), limit_keys + 4);
	h += v6 & l->prefixes;
	h ^= h >> 32;
	h *= limit_mix[0];
	h ^= h >> 29;
	h *= limit_mix[1];
	return h ^ h >> 32;
}

/* The tag of a hash, which distinguishes the prefixes of a bucket. Never 0. */
static __always_inline __u64 tag_of(__u64 hash)
{
	__u64 tag = hash & ((1 << (64 - TIME_BITS)) - 1);

	return tag + !tag;
}

/* The charge of one packet to one limit. */
struct charge {
	__u64 now; /* in units */
	__u64 cost;
	__u64 most;
	__u64 tag; /* not 0 */
	__u32 limit;
	__u32 keep; /* 0: the packet is a question */
};

enum outcome {
	CHARGED,
	EXCEEDED,
	OVERTAKEN, /* another CPU changed the word first */
};

/* The debt in a word, in units of time. */
static __always_inline __u64 debt_of(__u64 word, __u64 now)
{
	__u64 ahead = (word - now) & TIME_MASK;

	return !word || ahead >> DEBT_BITS ? 0 : ahead;
}

/*
 * Empties the slots of a bucket that was last swept at the given time. It must not empty a slot that another CPU wrote
 * after a sweep of its own. So it reads each word before it compares the time of the sweep: if that is unchanged, the
 * word is older than any other sweep.
 */
static __always_inline void sweep(struct limit_bucket *b, __u64 swept, __u64 ns, __u64 now, bool all)
{
#pragma nounroll
	for (__u32 i = 0; i < LIMIT_SLOTS; i++) {
		__u64 word = read_once(&b->slot[i]);

		if (!word || (!all && debt_of(word, now)))
			continue;
		if (read_ordered(&b->swept) != swept)
			return;
		__sync_val_compare_and_swap(&b->slot[i], word, 0);
	}
	__sync_val_compare_and_swap(&b->swept, swept, ns);
}

/*
 * Whether a packet is over the limit by the coarse clock. That clock is behind the exact one by some ticks of 1 to 10
 * ms, or by more if ticks are late, so a debt looks larger than it is. A packet may be refused some ticks too soon, but
 * none passes too soon: only the exact clock lets a packet pass and charges it. The prefix keeps its full rate unless a
 * debt is paid off before the coarse clock shows it, so only a debt above `sure` counts here. If one packet costs more than
 * `sure`, the burst is extended by `sure`, and the exact clock decides near the limit.
 */
static __always_inline bool surely_exceeded(struct limit_bucket *b, struct charge *c, __u64 sure)
{
	__u64 most = c->most + (c->cost > sure ? sure : 0);

#pragma unroll
	for (__u32 i = 0; i < LIMIT_SLOTS; i++) {
		__u64 w = read_once(&b->slot[i]), d;

		if (w >> TIME_BITS != c->tag)
			continue;
		d = debt_of(w, c->now);
		if (d > sure && d + c->cost > most)
			return true;
	}
	return false;
}

/*
 * Finds the first slot with a tag, and its debt. Returns the slot; LIMIT_SLOTS, and a debt of 0, if there is none. A word has the tag if
 * it is less than 2^TIME_BITS above the shifted tag. This test takes fewer instructions than the extraction of the tag.
 */
static __always_inline __u64 find_debt(struct limit_bucket *b, struct charge *c, __u64 *word, __u64 *debt)
{
	__u64 tag = c->tag << TIME_BITS, beyond = hidden(1ULL << TIME_BITS), at;

	*debt = opaque(0);
#pragma unroll
	for (at = 0; at < LIMIT_SLOTS; at++) {
		__u64 time = hidden(read_once(&b->slot[at]) - tag);

		if (time < beyond) {
			*word = tag + time;
			*debt = debt_of(*word, c->now);
			break;
		}
	}
	return opaque(at);
}

/* Finds the first slot without debt. Returns LIMIT_SLOTS if there is none. */
static __always_inline __u64 find_idle(struct limit_bucket *b, __u64 now, __u64 *word)
{
	__u64 at;

#pragma unroll
	for (at = 0; at < LIMIT_SLOTS; at++) {
		*word = read_once(&b->slot[at]);
		if (!debt_of(*word, now))
			break;
	}
	return opaque(at);
}

/* The slot with the least debt. */
static __always_inline __u64 find_victim(struct limit_bucket *b, __u64 now, __u64 *word, __u64 *debt)
{
	__u64 found = 0;

	*debt = opaque(~0ULL);
#pragma unroll
	for (__u32 i = 0; i < LIMIT_SLOTS; i++) {
		__u64 w = read_once(&b->slot[i]), d = debt_of(w, now);

		if (d >= *debt)
			continue;
		found = i;
		*word = w;
		*debt = d;
	}
	return opaque(found);
}

static __always_inline void count_eviction(__u32 number)
{
	__u64 *n = bpf_map_lookup_elem(&evictions, &number);

	if (n)
		(*n)++;
}

/* Charges a packet to its prefix unless the debt would exceed the burst. Returns an enum outcome. */
static __always_inline __u32 try_charge(struct limit_bucket *b, struct charge *c)
{
	__u64 word, debt, forgiven = 0, next, old;
	__u64 at;

	at = find_debt(b, c, &word, &debt);
	if (debt + c->cost > c->most)
		return EXCEEDED;
	if (!c->keep)
		return CHARGED;
	if (at == LIMIT_SLOTS)
		at = find_idle(b, c->now, &word);
	if (at == LIMIT_SLOTS)
		at = find_victim(b, c->now, &word, &forgiven);
	next = c->tag << TIME_BITS | ((c->now + debt + c->cost) & TIME_MASK);
	if (at >= LIMIT_SLOTS)
		return OVERTAKEN;
	old = __sync_val_compare_and_swap(&b->slot[at], word, next);
	if (hidden(old) != word)
		return OVERTAKEN;
	if (forgiven)
		count_eviction(c->limit);
	return CHARGED;
}

/* Calls try_charge(). A global function: the verifier checks it once and not for each try. */
__noinline __u32 charge(struct limit_bucket *b, struct charge *c)
{
	return b && c ? try_charge(b, c) : EXCEEDED;
}

static __always_inline __u64 cost_of(struct limit_info *l, __u32 length)
{
	__u64 amount = l->bits ? 8ULL * length : 1;

	return (amount * l->cost + (1 << AMOUNT_BITS) - 1) >> AMOUNT_BITS;
}

static __always_inline __u64 units(struct limit_info *l, __u64 ns)
{
	return ns << l->left >> l->right;
}

/* The properties of a packet that a limit needs besides addresses, in one number, because a BPF function takes five arguments. */
enum {
	TRAIT_IPV6 = 1,
	TRAIT_KEEP = 2,    /* the packet is charged; a question without it only gets the result */
	TRAIT_HALF = 4,    /* only half of the burst behind the first packet may be used */
	LENGTH_SHIFT = 8,  /* the length of the IP packet is in the 16 bits from here on */
	JOINED_SHIFT = 24, /* how many more packets are joined to it, at most JOINED_MOST */
};

static __always_inline __u32 joined_trait(struct packet *p)
{
	__u32 more = joined_to(p);

	return more < JOINED_MOST ? more : JOINED_MOST;
}

static __always_inline __u32 traits_of(struct packet *p)
{
	bool keep = (p->seen & (SEEN_QUESTION | SEEN_CHARGE)) != SEEN_QUESTION;

	return (p->family & 1) | (keep ? TRAIT_KEEP : 0) | p->length << LENGTH_SHIFT | joined_trait(p) << JOINED_SHIFT;
}

/*
 * Sets the cost of a packet. Packets that the kernel has joined are charged together. If that exceeds the burst, they cost the whole burst: separate
 * packets would have passed up to it, and a sender of long trains must not be refused for ever.
 */
static __always_inline void set_cost(struct charge *c, struct limit_info *l, __u32 traits)
{
	c->most = l->most;
	if (!JOINS) {
		c->cost = cost_of(l, traits >> LENGTH_SHIFT);
		return;
	}
	c->cost = cost_of(l, (__u16)(traits >> LENGTH_SHIFT)) * (1 + (traits >> JOINED_SHIFT));
	if (traits >> JOINED_SHIFT && c->cost > c->most)
		c->cost = c->most;
}

/* Charges a packet by the exact clock, unless it is over the limit. Returns an enum outcome. */
static __always_inline __u32 charge_exactly(struct limit_bucket *b, struct limit_info *l, struct charge *c, __u64 ns)
{
	__u64 swept = read_once(&b->swept);
	__s64 age = ns - swept;

	c->now = units(l, ns);
	if (age > (__s64)l->fresh) {
		bool stale = (__u64)age > 2 * l->fresh; /* all that is there */

		if (c->keep)
			sweep(b, swept, ns, c->now, stale);
		else if (stale)
			return c->cost > c->most;
	}
#pragma nounroll
	for (__u32 i = 0; i < LIMIT_TRIES; i++) {
		__u32 o = charge(b, c);

		if (o != OVERTAKEN)
			return o;
	}
	return EXCEEDED;
}

/* The bucket of the prefixes of a packet, and their hash. */
static __always_inline struct limit_bucket *bucket_of(struct limit_info *l, struct charged *w, __u32 v6, __u64 *hash)
{
	__u64 at;

	*hash = hash_prefixes(l, w, v6);
	at = l->base + ((*hash >> TIME_BITS) & l->mask);
	return bpf_map_lookup_elem(&limits, &at);
}

/*
 * Whether a packet is over a limit; if not, it is charged. A global function, so the verifier assumes that w
 * may be null.
 */
__noinline __u32 charge_limit(struct charged *w, __u32 number, __u32 traits)
{
	struct limit_info *l = bpf_map_lookup_elem(&limit_info, &number);
	struct limit_bucket *b;
	struct charge c;
	__u64 hash, ns, sure;

	if (!w || !l)
		return 0;
	b = bucket_of(l, w, traits & TRAIT_IPV6, &hash);
	if (!b)
		return 0;
	set_cost(&c, l, traits);
	c.tag = tag_of(hash);
	c.limit = number;
	c.keep = traits & TRAIT_KEEP;
	sure = units(l, SURE_DEBT);
	/* If the exact time of the packet is known already, the exact clock decides, below. */
	if (c.most > sure && !w->now) {
		ns = coarse_time();
		c.now = units(l, ns);
		if ((__s64)(ns - read_once(&b->swept)) <= (__s64)l->fresh && surely_exceeded(b, &c, sure))
			return EXCEEDED;
	}
	return charge_exactly(b, l, &c, charge_time(w));
}

/*
 * Charges a packet at a given time, like charge_limit(), but without a call. It handles only the usual case: the bucket needs no sweep,
 * and no other CPU writes the word at the same time. Returns an enum outcome. OVERTAKEN means that nothing is charged, and that
 * charge_limit() must decide.
 */
static __always_inline __u32 charge_at_once(struct charged *w, __u32 number, __u32 v6, __u32 length)
{
	struct limit_info *l = bpf_map_lookup_elem(&limit_info, &number);
	struct limit_bucket *b;
	struct charge c;
	__u64 hash;

	if (!l)
		return CHARGED;
	b = bucket_of(l, w, v6, &hash);
	if (!b)
		return CHARGED;
	if ((__s64)(w->now - read_once(&b->swept)) > (__s64)l->fresh)
		return OVERTAKEN;
	c.now = units(l, w->now);
	c.cost = cost_of(l, length);
	c.most = l->most;
	c.tag = tag_of(hash);
	c.limit = number;
	c.keep = 1;
	return try_charge(b, &c);
}

/* Whether the debt of a tag exceeds `sure`, by the coarse clock, all in units. */
static __always_inline bool surely_more(struct limit_bucket *b, __u64 tag, __u64 now, __u64 sure)
{
#pragma unroll
	for (__u32 i = 0; i < LIMIT_SLOTS; i++) {
		__u64 w = read_once(&b->slot[i]);

		if (w >> TIME_BITS == tag)
			return debt_of(w, now) > sure;
	}
	return false;
}

/*
 * Whether a packet is over a limit; if not, it is charged. The generated entry calls it, with values of limit_info that it has
 * as constants. `hash` is the hash of the prefixes, `at` the bucket. A debt above `sure` means that the packet is over the limit
 * by the coarse clock; ~0 skips that test. `fresh` is that of limit_info. `what` has the limit's number in its upper half, then
 * 16 bits with the length of the IP packet, 8 bits with the left shift, and 8 with the right shift. A global function.
 */
__noinline __u32 charge_hash(__u64 hash, __u64 at, __u64 sure, __u64 fresh, __u64 what)
{
	struct limit_bucket *b = bpf_map_lookup_elem(&limits, &at);
	__u64 ns = coarse_time(), now = ns << (what >> 8 & 63) >> (what & 63), tag = tag_of(hash);
	__u32 number = what >> 32;
	struct limit_info *l;
	struct charge c;

	if (!b)
		return 0;
	if (sure != ~0ULL && (__s64)(ns - read_once(&b->swept)) <= (__s64)fresh && surely_more(b, tag, now, sure))
		return EXCEEDED;
	l = bpf_map_lookup_elem(&limit_info, &number);
	if (!l)
		return 0;
	c.cost = cost_of(l, (__u16)(what >> 16));
	c.most = l->most;
	c.tag = tag;
	c.limit = number;
	c.keep = 1;
	return charge_exactly(b, l, &c, bpf_ktime_get_ns());
}

static __always_inline __u32 limit_exceeded(struct packet *p, __u32 number)
{
	return charge_limit(&p->charged, number, traits_of(p));
}

/* The nanoseconds until a packet is within a limit: 0 if it is now, otherwise at least 1. The packet is not charged. A global function. */
__noinline __u64 limit_wait(struct charged *w, __u32 number, __u32 traits)
{
	struct limit_info *l = bpf_map_lookup_elem(&limit_info, &number);
	__u64 hash, word, debt, ns;
	struct limit_bucket *b;
	struct charge c = {};

	if (!w || !l)
		return 0;
	b = bucket_of(l, w, traits & TRAIT_IPV6, &hash);
	if (!b)
		return 0;
	ns = charge_time(w);
	c.now = units(l, ns);
	c.tag = tag_of(hash);
	set_cost(&c, l, traits);
	find_debt(b, &c, &word, &debt);
	if ((__s64)(ns - read_once(&b->swept)) > (__s64)(2 * l->fresh)) /* it says nothing any more */
		debt = 0;
	if (traits & TRAIT_HALF && c.cost < c.most)
		c.most -= (c.most - c.cost) / 2;
	if (debt + c.cost <= c.most)
		return 0;
	return ((debt + c.cost - c.most) << l->right >> l->left) + 1;
}

/* Reduces the debt of a prefix by a charge, but not below 0. Returns an enum outcome. A global function, like charge(). */
__noinline __u32 take_back(struct limit_bucket *b, struct charge *c)
{
	__u64 word, debt, left;
	__u64 at;

	if (!b || !c)
		return CHARGED;
	at = find_debt(b, c, &word, &debt);
	if (at >= LIMIT_SLOTS || !debt)
		return CHARGED;
	left = debt > c->cost ? debt - c->cost : 0;
	left = c->tag << TIME_BITS | ((c->now + left) & TIME_MASK);
	return __sync_val_compare_and_swap(&b->slot[at], word, left) == word ? CHARGED : OVERTAKEN;
}

/*
 * Refunds the charge of a packet, because the event that it was charged for did not happen. A global function.
 */
__noinline __u32 limit_credit(struct packet *p, __u32 number)
{
	struct limit_info *l = bpf_map_lookup_elem(&limit_info, &number);
	struct charge c = {};
	struct limit_bucket *b;
	__u64 hash;

	if (!p || !l || !(traits_of(p) & TRAIT_KEEP))
		return 0;
	b = bucket_of(l, &p->charged, p->family & 1, &hash);
	if (!b)
		return 0;
	c.now = units(l, time_of(p));
	c.tag = tag_of(hash);
	c.cost = cost_of(l, p->length);
#pragma nounroll
	for (__u32 i = 0; i < LIMIT_TRIES; i++)
		if (take_back(b, &c) != OVERTAKEN)
			return 1;
	return 0;
}
