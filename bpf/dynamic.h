/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sets that are filled at run time. User space has one writer at a time, which holds a lock; this program reads. An
 * entry is in force until its expiry, whether or not any process is alive.
 */
#pragma once

#include "address.h"
#include "bits.h"
#include "classify.h"
#include "clock.h"
#include "packet.h"
#include "verifier.h"

enum {
	MAX_DYNAMIC_SETS = 8,
	LENGTH_BLOCKS = 256,
	LENGTH_WORDS = 3,
};

struct dynamic_info {
	__u64 seed;
	__u32 base; /* the set's first bucket */
	__u32 mask; /* the number of its buckets, a power of two, minus 1 */
	__u32 capacity;
	__u32 entries;
	__u64 reserved[5];
};

struct dynamic_info dynamic_info[MAX_DYNAMIC_SETS] SEC(".data.dynamic");

/*
 * The prefix lengths that a set may have in a block of addresses. Bit n stands for the length 128 - n, in the 128-bit form, so the longest
 * comes first. Addresses are in one block if their first 16 bits (IPv4) or 32 bits (IPv6) have the same hash. A lookup tries only the lengths
 * of its block, so its cost does not grow with the number of lengths in the whole set.
 */
struct lengths {
	__u64 word[LENGTH_WORDS];
};

struct lengths dynamic_lengths[1] SEC(".data.lengths"); /* by set, family and block: internal/model/addrs/lengths.go */
const volatile __u32 dynamic_lengths_mask;

/* The sets that rules match against sources and against destinations, and the set of the host's own addresses, one bit each. */
const volatile __u32 dynamic_src_sets;
const volatile __u32 dynamic_dst_sets;
const volatile __u32 local_set;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} dynamic SEC(".maps");

/* Seconds of CLOCK_MONOTONIC. The coarse clock costs next to nothing and is at most some ticks behind. */
static __always_inline __u32 now_seconds(void)
{
	return coarse_time() / 1000000000;
}

/* Whether a set has the prefix of this length, 0 to 128, that contains an address. A global function, which the verifier checks once. */
__noinline __u32 has_prefix(__u32 number, __u64 hi, __u64 lo, __u32 length)
{
	struct dynamic_info *set = &dynamic_info[number & (MAX_DYNAMIC_SETS - 1)];
	struct address a = { hi, lo };
	__u32 expiry;

	return find_prefix(&dynamic, true, set->base, set->mask, set->seed, masked(a, length), length + 1, &expiry) &&
	       (!expiry || expiry > now_seconds());
}

/* The prefix lengths that a set may have in the block of an address. */
static __always_inline struct lengths *lengths_of(__u32 number, __u64 hi, __u64 lo, __u32 v6)
{
	__u32 start = v6 ? hi >> 32 : (__u32)lo >> 16;
	__u32 block = (start * 0x9e3779b1) >> 24; /* Fibonacci hashing (Knuth, volume 3, 6.4) */

	return &table(dynamic_lengths)[((number * 2 + v6) * LENGTH_BLOCKS + block) & dynamic_lengths_mask];
}

/*
 * Whether a set has an address. A global function. An IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2) is not the IPv4 address, and must not
 * match entries for the IPv4 address.
 */
__noinline __u32 is_member(__u32 number, __u64 hi, __u64 lo, __u32 v6)
{
	struct lengths *lengths;
	__u64 bits;

	v6 &= 1;
	lengths = lengths_of(number, hi, lo, v6);
	bits = lengths->word[0];
	if (v6 && !hi && lo >> 32 == 0xffff)
		bits &= ~0ULL << 33;
	for (int word = 0;;) {
		for (int i = 0; i < 64 && bits; i++) {
			__u32 at = bits & 1 ? 0 : lowest_bit(bits); /* most entries are single addresses */

			if (has_prefix(number, hi, lo, 128 - word * 64 - at))
				return 1;
			bits &= bits - 1;
		}
		if (!v6 || ++word == LENGTH_WORDS)
			return 0;
		bits = lengths->word[word];
	}
}

/* Returns the sets among the given ones that have the address, one bit each. sets is a constant to the verifier. */
static __always_inline __u32 dynamic_sets(struct address a, bool v6, __u32 sets)
{
	__u32 members = 0;

#pragma unroll
	for (int i = 0; i < MAX_DYNAMIC_SETS; i++)
		if (sets >> i & 1)
			members |= (is_member(i, a.hi, a.lo, v6) & 1) << i;
	return members;
}
