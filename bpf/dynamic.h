/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sets that are filled at run time. User space has one writer at a time, which holds a lock; this program reads. An
 * entry is in force until its expiry, whether or not any process is alive.
 */
#pragma once

#include "address.h"
#include "classify.h"
#include "clock.h"
#include "packet.h"
#include "verifier.h"

enum {
	MAX_DYNAMIC_SETS = 8,
	DYNAMIC_LENGTHS = 8, /* distinct prefix lengths of one family in one set */
};

struct dynamic_info {
	__u64 seed;
	__u32 base; /* the set's first bucket */
	__u32 mask; /* its buckets, a power of two, less 1 */
	__u32 capacity;
	__u32 entries;
	__u8 count[2];                    /* how many lengths are in use, IPv4 and IPv6 */
	__u8 lengths[2][DYNAMIC_LENGTHS]; /* prefix length + 1, in the 128-bit form */
	__u8 reserved[6];
	__u64 absent
		[2]; /* by family and a hash of the address (absent_bit of internal/model/addrs): bits that no address of the set has */
};

struct dynamic_info dynamic_info[MAX_DYNAMIC_SETS] SEC(".data.dynamic");

/* The sets that rules match against sources and against destinations, and the one with the host's own addresses: bits. */
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

/*
 * Whether a set has an address. A global function, which the verifier checks once. An IPv4-mapped IPv6 address (RFC
 * 4291, 2.5.5.2) is not the IPv4 address, and must not match the entries of that.
 */
__noinline __u32 is_member(__u32 number, __u64 hi, __u64 lo, __u32 v6)
{
	struct dynamic_info *set = &dynamic_info[number & (MAX_DYNAMIC_SETS - 1)];
	struct address a = { hi, lo };
	__u64 none = opaque(0);
	__u32 longest = 255;

	if ((v6 & 1) && !hi && lo >> 32 == 0xffff)
		longest = 96;
	/* With opaque() both paths have the same state for the verifier, and it verifies the loop once. */
	longest += none;
	v6 = (v6 + none) & 1;
	for (int i = 0; i < DYNAMIC_LENGTHS; i++) {
		__u32 length, expiry;

		if (i >= set->count[v6])
			return 0;
		length = set->lengths[v6][i];
		if (length > longest)
			continue;
		if (find_prefix(&dynamic, true, set->base, set->mask, set->seed, masked(a, length - 1), length,
				&expiry) &&
		    (!expiry || expiry > now_seconds()))
			return 1;
	}
	return 0;
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
