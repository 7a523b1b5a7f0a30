/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The connections whose client has proved its address. The client's address and port are the source.
 *
 * A table of buckets of one cache line each. A bitmap in front of it has a bit for each bucket that was ever used, so
 * most packets of no connection read only the bitmap. A packet that finds no flow in its bucket removes expired flows
 * from the bucket, so that bits are cleared again. Only flows with a proved address are stored.
 *
 * A new flow in a full bucket replaces another: first a flow that the kernel is not known to have, then a flow that the
 * kernel was once found to have, and last a flow that it was found to have for more than a minute. Among equals, it replaces the flow that
 * was seen longest ago. A flow of the last two kinds is replaced only for a source whose prefix has not displaced too
 * many (see note_flow() in protect.h). The kernel is asked about a displaced flow again when its next packet comes.
 * internal/kernel/datapath/table.go reads and writes the same words.
 */
#pragma once

#include "clock.h"
#include "packet.h"
#include "siphash.h"
#include "verifier.h"

enum flow_state {
	FLOW_NONE,
	FLOW_PROVED,      /* its cookie came back; the kernel may not have the connection yet */
	FLOW_ESTABLISHED, /* the kernel has it */
	FLOW_CLOSING,     /* one side has closed it */
	FLOW_REOPENED,    /* a SYN passed after that; the kernel may not have the connection yet */
	FLOW_DOUBTED,     /* the kernel has it, but a FIN or RST came with another number than the expected one */
	FLOW_LASTING,     /* the kernel still had it FLOW_REFRESH seconds or more after it was established */

	/* A flag beside a state that is stored: */
	FLOW_DISPLACE = 16, /* the flow may displace a flow that the kernel has */
};

/* The result of an attempt to store a flow. */
enum flow_noted {
	FLOW_OVERTAKEN, /* other CPUs wrote the slot at that moment, again and again */
	FLOW_NOTED,
	FLOW_FULL, /* it would have to displace another, and has no FLOW_DISPLACE */
};

/* The answer of the flow table about a segment, by its addresses and ports alone. */
enum flow_answer {
	FLOW_UNSURE,  /* its flow is stored, but there is something to store or to ask */
	FLOW_OPEN,    /* its flow is in one of the states that were asked for, and need not be stored again */
	FLOW_UNKNOWN, /* its flow is not stored */
};

enum {
	FLOW_SLOTS = 8,
	FLOW_SEEN_BITS = 24, /* bits of seconds of CLOCK_MONOTONIC: they repeat after 194 days */
	FLOW_STATE_BITS = 3,
	FLOW_TAG_SHIFT = 27, /* the bits of the hash from here on are the tag; those below have the bucket's number */
	FLOW_REFRESH = 64,   /* seconds for which a flow need not be written again */
	FLOW_DOUBT =
		2, /* seconds in which the kernel receives the segments before a FIN, which may reach it in another order */
	FLOW_LINGER = 128, /* seconds for which a flow is kept that the kernel is not known to have */
	FLOW_TRIES = 4,    /* attempts to write a word that other CPUs write, too */
	FLOW_LIFE = 86400, /* seconds for any other flow: more than the 2 hours of TCP's keep-alive (RFC 9293, 3.8.4) */
};

/* Each word is a tag, a state, and the second at which the flow was last seen. */
struct flow_bucket {
	__u64 word[FLOW_SLOTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow_bucket);
} flows SEC(".maps");

/* A bit for each bucket, in words of 64: see table(). */
__u64 flow_filter[8] SEC(".data.flowbits");

/* The number of buckets, a power of two, minus 1. At most 2^25 buckets (maxFlowBuckets of internal/compile/xdp). Constant. */
const volatile __u32 flow_mask;

/*
 * Random keys, which outlive a generation. The key of a cookie is that of its time slot: a slot that begins before
 * `rotated` has the key `previous`. So a rotation writes `previous`, then `rotated`, then `present`, and the next
 * rotation waits until all cookies with the key `previous` have expired.
 */
struct syn_keys {
	__u64 present[2];
	__u64 previous[2];
	__u64 rotated; /* ns of CLOCK_MONOTONIC */
	__u64 hash[2]; /* of flows, for as long as the table lives */
};

/* A global variable: a map with one value would cost each packet a lookup. */
struct syn_keys syn_keys SEC(".data.syn_keys");

/*
 * Nanoseconds of CLOCK_MONOTONIC, read once for each packet. The coarse clock costs almost nothing and is at most some
 * ticks late, which is exact enough for cookies and for limits of SYN-ACKs.
 */
static __always_inline __u64 tick_of(struct packet *p)
{
	if (!p->now)
		p->now = coarse_time();
	return p->now;
}

/* The ports, the client's in the upper half. The field of a TCP port holds the port number itself. */
static __always_inline __u32 both_ports(struct packet *p)
{
	return p->sport << 16 | (p->port & 0xffff);
}

static __always_inline __u64 hash_word(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * (syn_keys.hash[1] | 1);
	return hash ^ hash >> 32;
}

/*
 * Like hash_word(), with a second secret factor. Without it, a sender could flip the top bit of one word and undo that in the
 * next word. The word of the ports does not need it, because it has only 32 bits.
 */
static __always_inline __u64 hash_half(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * (syn_keys.hash[1] | 1);
	hash = (hash ^ hash >> 29) * (syn_keys.hash[0] | 1);
	return hash ^ hash >> 32;
}

/*
 * A multiplicative hash of the addresses (IPv4: one word, the source in its upper half) and the ports, with secret
 * factors. It may be weaker than the hash of cookies: with two flows of the same hash, a sender could only make packets
 * of both pass where one passes, and he never sees a hash. The generated entry calls the function that is not inline.
 */
static __always_inline __u64 hash_addresses4(__u64 pair)
{
	return hash_word(syn_keys.hash[0], pair);
}

__noinline __u64 hash_addresses6(__u64 src_hi, __u64 src_lo, __u64 dst_hi, __u64 dst_lo)
{
	__u64 hash = hash_half(hash_half(syn_keys.hash[0], src_hi), src_lo);

	return hash_half(hash_half(hash, dst_hi), dst_lo);
}

static __always_inline __u64 hash_ports(__u64 addresses, __u64 ports)
{
	return hash_word(hash_word(addresses, ports), 0);
}

static __always_inline __u64 flow_hash(struct packet *p)
{
	__u64 addresses = p->family ? hash_addresses6(p->src.hi, p->src.lo, p->dst.hi, p->dst.lo)
				    : hash_addresses4(p->src.lo << 32 | (__u32)p->dst.lo);

	return hash_ports(addresses, both_ports(p));
}

static __always_inline __u32 flow_state_of(__u64 word)
{
	return word >> FLOW_SEEN_BITS & ((1 << FLOW_STATE_BITS) - 1);
}

static __always_inline bool is_flow(__u64 word, __u64 hash)
{
	return !((word ^ hash) >> FLOW_TAG_SHIFT) && flow_state_of(word);
}

static __always_inline __u32 flow_seconds(struct packet *p)
{
	return tick_of(p) / 1000000000 & ((1 << FLOW_SEEN_BITS) - 1);
}

/* Seconds since a flow was last seen; 0 when another CPU, whose clock is a tick ahead, saw it in the next second. */
static __always_inline __u32 flow_age(__u64 word, __u32 now)
{
	__u32 age = (now - (__u32)word) & ((1 << FLOW_SEEN_BITS) - 1);

	return age & ((age >> (FLOW_SEEN_BITS - 1)) - 1);
}

static __always_inline __u64 flow_word(__u64 hash, __u32 state, __u32 now)
{
	return hash >> FLOW_TAG_SHIFT << FLOW_TAG_SHIFT | (__u64)state << FLOW_SEEN_BITS | now;
}

/* The word of the bitmap that has the bucket's bit. */
static __always_inline __u64 *filter_word(__u64 hash)
{
	return &table(flow_filter)[(hash & flow_mask) >> 6];
}

/* The bucket's bit in that word. There are at least 64 buckets, so flow_mask has all bits of 63. */
static __always_inline __u64 filter_bit(__u64 hash)
{
	return 1ULL << (hash & 63);
}

/* The slot of a flow, or FLOW_SLOTS if the bucket does not have it. */
static __always_inline __u64 find_flow(struct flow_bucket *b, __u64 hash)
{
	__u64 at;

#pragma unroll
	for (at = 0; at < FLOW_SLOTS; at++)
		if (is_flow(read_once(&b->word[at]), hash))
			break;
	return opaque(at);
}

/*
 * The rank of a state in the choice of a victim: 0 if the kernel is not known to have the flow, 1 if it was found to have
 * it, 2 if for long. Two bits for each state in place of a branch, because each branch is one more path for the verifier.
 */
static __always_inline __u32 flow_rank(__u32 state)
{
	return (1 << 2 * FLOW_ESTABLISHED | 1 << 2 * FLOW_DOUBTED | 2 << 2 * FLOW_LASTING) >> 2 * state & 3;
}

enum { RANK_SHIFT = 32 };

/* The cost of replacing the flow in a slot: 0 for a free slot; otherwise the rank in the upper half, and the newness in the lower half. */
static __always_inline __u64 slot_worth(__u64 word, __u32 now)
{
	__u32 state = flow_state_of(word), taken = (state | -state) >> 31;
	__u64 newness = (1 << FLOW_SEEN_BITS) - flow_age(word, now);

	return ((__u64)flow_rank(state) << RANK_SHIFT | newness) * taken;
}

/*
 * The slot for a new flow: the one with the lowest slot_worth(), with its rank in the upper half. A global function.
 */
__noinline __u64 flow_victim(struct flow_bucket *b, __u32 now)
{
	__u64 found = 0, least = ~0ULL >> 1;

	if (!b)
		return 0;
#pragma nounroll
	for (__u32 i = 0; i < FLOW_SLOTS; i++) {
		__u64 worth = slot_worth(read_once(&b->word[i]), now), less = opaque((worth - least) >> 63);

		found += (i - found) * less;
		least += (worth - least) * less;
	}
	return (least >> RANK_SHIFT << RANK_SHIFT) | found;
}

static __always_inline bool is_over(__u64 word, __u32 now)
{
	return flow_state_of(word) && flow_age(word, now) > (flow_rank(flow_state_of(word)) ? FLOW_LIFE : FLOW_LINGER);
}

static __always_inline bool is_empty(struct flow_bucket *b)
{
	__u64 any = 0;

#pragma unroll
	for (__u32 i = 0; i < FLOW_SLOTS; i++)
		any |= read_once(&b->word[i]);
	return !any;
}

/*
 * Removes expired flows from a bucket, and clears its bit when none is left. Another CPU that stores a flow meanwhile
 * writes the flow before it reads the bit: so one of the two CPUs sees the change of the other.
 */
static __always_inline void sweep_flows(struct flow_bucket *b, __u64 *filter, __u64 bit, __u32 now)
{
	__u64 old;

#pragma unroll
	for (__u32 i = 0; i < FLOW_SLOTS; i++) {
		__u64 w = read_once(&b->word[i]);

		if (is_over(w, now))
			__sync_val_compare_and_swap(&b->word[i], w, 0);
	}
	if (!is_empty(b))
		return;
	/* Only an atomic operation that returns the old value orders memory: Documentation/atomic_t.txt of Linux. */
	old = __sync_fetch_and_and(filter, ~bit);
	if (opaque(old) && !is_empty(b))
		__sync_fetch_and_or(filter, bit);
}

/*
 * The state of a packet's flow, an enum flow_state. Its age counts from when it was last stored. A global function: the verifier
 * assumes that the argument may be null.
 */
__noinline __u32 flow_state(struct packet *p)
{
	__u32 number, now;
	struct flow_bucket *b;
	__u64 hash, at, word, *filter;

	if (!p)
		return FLOW_NONE;
	p->flow_hash = hash = flow_hash(p);
	filter = filter_word(hash);
	if (!(*filter & filter_bit(hash)))
		return FLOW_NONE;
	number = hash & flow_mask;
	b = bpf_map_lookup_elem(&flows, &number);
	if (!b)
		return FLOW_NONE;
	now = flow_seconds(p);
	at = find_flow(b, hash);
	word = at < FLOW_SLOTS ? read_once(&b->word[at]) : 0;
	if (!is_flow(word, hash) || is_over(word, now)) {
		sweep_flows(b, filter, filter_bit(hash), now);
		return FLOW_NONE;
	}
	p->flow_age = flow_age(word, now);
	return flow_state_of(word);
}

/*
 * Whether the flow with a hash has one of the states (a bit each) and was seen so lately that it need be neither stored nor
 * asked about again. Returns an enum flow_answer. It searches the bucket without a test of the filter. It writes
 * nothing: packets that come to flow_state() sweep the buckets.
 */
static __always_inline __u32 find_noted_flow(__u64 hash, __u64 states)
{
	__u32 number = hash & flow_mask;
	struct flow_bucket *b = bpf_map_lookup_elem(&flows, &number);
	__u64 word;

	if (!b)
		return FLOW_UNSURE;
#pragma unroll
	for (int slot = 0; slot < FLOW_SLOTS; slot++) {
		word = read_once(&b->word[slot]);
		if (is_flow(word, hash))
			goto found;
	}
	return FLOW_UNKNOWN;
found:
	if (!(states >> flow_state_of(word) & 1))
		return FLOW_UNSURE;
	return flow_age(word, coarse_time() / 1000000000) < FLOW_REFRESH;
}

/* Like find_noted_flow(), but tests the filter first. */
static __always_inline __u32 find_open_flow(__u64 hash, __u64 states)
{
	return *filter_word(hash) & filter_bit(hash) ? find_noted_flow(hash, states) : FLOW_UNKNOWN;
}

/*
 * find_open_flow() for the generated entry. `pair` is both IPv4 addresses, the source in the upper half; `addresses` a hash of
 * the IPv6 addresses; `ports` has the client's port in the upper half. Global functions.
 */
__noinline __u32 find_open_flow4(__u64 pair, __u64 ports, __u64 states)
{
	return find_open_flow(hash_ports(hash_addresses4(pair), ports), states);
}

__noinline __u32 find_open_flow6(__u64 addresses, __u64 ports, __u64 states)
{
	return find_open_flow(hash_ports(addresses, ports), states);
}

/* Tries to write the word of a flow; 0 removes the flow. Returns an enum flow_noted. */
static __always_inline __u32 write_flow(struct flow_bucket *b, __u64 hash, __u64 next, __u32 now, bool displace)
{
	__u64 at = find_flow(b, hash), word, victim;

	if (at >= FLOW_SLOTS && next) {
		victim = flow_victim(b, now);
		if (victim >> RANK_SHIFT && !displace)
			return FLOW_FULL;
		at = victim & (2 * FLOW_SLOTS - 1);
	}
	if (at >= FLOW_SLOTS)
		return FLOW_NOTED;
	word = read_once(&b->word[at]);
	return __sync_val_compare_and_swap(&b->word[at], word, next) == word ? FLOW_NOTED : FLOW_OVERTAKEN;
}

/*
 * Stores the state of a packet's flow; FLOW_NONE removes the flow. Returns an enum flow_noted. A global function, like
 * flow_state().
 */
__noinline __u32 flow_set(struct packet *p, __u32 state)
{
	__u32 number, now, noted = FLOW_OVERTAKEN;
	struct flow_bucket *b;
	__u64 hash, next, *filter;

	if (!p)
		return FLOW_OVERTAKEN;
	hash = flow_hash(p);
	number = hash & flow_mask;
	b = bpf_map_lookup_elem(&flows, &number);
	filter = filter_word(hash);
	if (!b)
		return FLOW_OVERTAKEN;
	now = flow_seconds(p);
	next = state ? flow_word(hash, state & ((1 << FLOW_STATE_BITS) - 1), now) : 0;
	for (int i = 0; i < FLOW_TRIES && noted == FLOW_OVERTAKEN; i++)
		noted = write_flow(b, hash, next, now, state & FLOW_DISPLACE);
	if (noted == FLOW_NOTED && state && !(read_once(filter) & filter_bit(hash)))
		__sync_fetch_and_or(filter, filter_bit(hash));
	return noted;
}
