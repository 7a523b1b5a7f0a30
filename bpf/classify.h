/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From an address to its class: a number that all addresses share which the policy cannot tell apart. One lookup,
 * however many sets there are. internal/addrs builds the tables, and documents their layout.
 */
#pragma once

#include "address.h"
#include "bits.h"
#include "packet.h"
#include "verifier.h"

/*
 * The tables that every packet reads are globals: their address is a constant in the program, where a map lookup would
 * cost a call or a bounds check. Their sizes are the policy's: the loader sets them, so here they are small, and
 * table() keeps the compiler from knowing so. The masks and shifts below are constants to the verifier.
 */
__u64 filter4[8] SEC(".data.filter4");   /* a bit per block of 2^filter4_shift addresses: any class but 0? */
__u64 index4[8] SEC(".data.index4");     /* per 32 blocks of /24: which have a line, and where lines start */
__u16 background4[8] SEC(".data.back4"); /* per /16: the class of its /24s without a line */
__u64 filter6[8] SEC(".data.filter6");   /* a bit per hash of a /32: any prefix there? */

#define table(global)                                  \
	({                                             \
		typeof(&(global)[0]) start = (global); \
		asm("" : "+r"(start));                 \
		start;                                 \
	})

const volatile __u32 filter4_shift;
const volatile __u32 filter4_mask; /* of the index of a 64-bit word; 0 when the IPv4 table is empty */
const volatile bool have_background4;
const volatile bool have_lines4;
const volatile __u32 hosts4_buckets; /* 0: no addresses are listed one by one */
const volatile __u64 hosts4_seed;
const volatile __u32 buckets6_mask;
const volatile __u64 buckets6_seed;
const volatile __u32 lengths6_count; /* 0 when the IPv6 table is empty */
const volatile __u8 lengths6[129];

/* The addresses of a /24 that has more than a background. */
struct line {
	__u64 hosts[4]; /* a bit per address: of class inside, or else outside */
	__u16 inside;
	__u16 outside;
	__u32 full; /* 1 + the number in full4 when there are more than two classes */
	__u64 reserved[3];
};

struct full {
	__u16 class[256];
};

enum {
	HOST_SLOTS = 8,
	HOST_PROBES = 8,
};

/* Addresses that are listed one by one. */
struct hosts {
	__u32 address[HOST_SLOTS];
	__u16 class[HOST_SLOTS]; /* 0: the slot is empty */
	__u32 more;              /* look into the next bucket too */
	__u32 reserved[3];
};

/* A bucket of a hash of prefixes. */
struct bucket {
	struct address key[3];
	__u32 meta[3];
	__u32 lengths; /* in octets 0 to 2 the prefix lengths + 1, 0 in an empty slot; octet 3: look into the next bucket too */
};

enum {
	BUCKET_SLOTS = 3,
	BUCKET_PROBES = 8,
	META_MARKER = 1 << 16, /* longer prefixes may exist below this one */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct line);
} lines4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct full);
} full4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hosts);
} hosts4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets6 SEC(".maps");

static __always_inline __u32 class_in_line(struct line *line, __u32 addr)
{
	__u32 number = line->full;

	if (number) {
		struct full *full;

		number--;
		full = bpf_map_lookup_elem(&full4, &number);
		return full ? full->class[addr & 0xff] : 0;
	}
	return line->hosts[(addr >> 6) & 3] >> (addr & 63) & 1 ? line->inside : line->outside;
}

/* The bucket of an address: a hash, of which multiplication takes the share (Lemire, 2019). */
static __always_inline __u32 host_bucket(__u32 addr)
{
	__u64 h = (addr ^ hosts4_seed) * 0x9e3779b97f4a7c15;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93;
	return (h >> 32) * hosts4_buckets >> 32;
}

static __always_inline __u32 class_of_host(__u32 addr)
{
	__u32 number = host_bucket(addr);

	for (int i = 0; i < HOST_PROBES; i++) {
		struct hosts *b = bpf_map_lookup_elem(&hosts4, &number);

		if (!b)
			return 0;
		/* An empty slot looks like 0.0.0.0 of class 0; a listed 0.0.0.0 stands before it. */
#pragma unroll
		for (int slot = 0; slot < HOST_SLOTS; slot++)
			if (b->address[slot] == addr)
				return b->class[slot];
		if (!b->more)
			return 0;
		if (++number == hosts4_buckets)
			number = 0;
	}
	return 0;
}

/* The class of an address in a /24 that has a line, -1 when it has none. */
static __always_inline int class_by_line(__u32 addr)
{
	__u32 block = addr >> 8, number;
	__u64 entry = table(index4)[block >> 5];
	__u32 present = entry;
	struct line *line;

	if (!(present >> (block & 31) & 1))
		return -1;
	number = (entry >> 32) + population(present & ((1U << (block & 31)) - 1));
	line = bpf_map_lookup_elem(&lines4, &number);
	return line ? class_in_line(line, addr) : 0;
}

/* What the filter lets through: most of it is listed. A function of its own to the verifier. */
__noinline __u32 class4(__u32 addr)
{
	__u32 class;

	if (have_lines4) {
		int by_line = class_by_line(addr);

		if (by_line >= 0)
			return by_line;
	}
	class = hosts4_buckets ? class_of_host(addr) : 0;
	return class || !have_background4 ? class : table(background4)[addr >> 16];
}

static __always_inline bool listed4(__u32 addr)
{
	__u32 block = addr >> filter4_shift;

	return table(filter4)[(block >> 6) & filter4_mask] >> (block & 63) & 1;
}

/* The hash of a prefix, whose seed the loader draws anew for each table. */
static __always_inline __u32 hash_prefix(__u64 seed, struct address key, __u32 length)
{
	__u64 h = (key.hi ^ seed) * 0x9e3779b97f4a7c15;

	h ^= h >> 32;
	h = (h + key.lo) * 0xd6e8feb86659fd93;
	h ^= h >> 32;
	h = (h + length) * 0x9e3779b97f4a7c15;
	return h >> 32;
}

/* Returns the slot of a prefix in a bucket, BUCKET_SLOTS when it is not there. length is the prefix length + 1. */
static __always_inline __u32 slot_in_bucket(struct bucket *b, __u32 lengths, struct address key, __u32 length)
{
#pragma unroll
	for (int i = 0; i < BUCKET_SLOTS; i++)
		if (!(((lengths >> (8 * i) & 0xff) ^ length) | (b->key[i].lo ^ key.lo) | (b->key[i].hi ^ key.hi)))
			return i;
	return BUCKET_SLOTS;
}

/*
 * Finds the meta word of a prefix in a table of buckets. Returns false when it is not there. Entries of a dynamic set
 * may move meanwhile, to a later bucket and copied first: what a bucket holds and whether the search goes on must come
 * from one read, or an entry could be missed in both places.
 */
static __always_inline bool find_prefix(void *table, __u32 base, __u32 mask, __u64 seed, struct address key,
					__u32 length, __u32 *meta)
{
	__u32 hash = hash_prefix(seed, key, length);

	for (int i = 0; i < BUCKET_PROBES; i++) {
		__u32 number = base + ((hash + i) & mask), slot, lengths;
		struct bucket *b = bpf_map_lookup_elem(table, &number);

		if (!b)
			return false;
		lengths = *(volatile __u32 *)&b->lengths;
		slot = slot_in_bucket(b, lengths, key, length);
		if (slot < BUCKET_SLOTS) {
			*meta = b->meta[slot];
			return true;
		}
		if (!(lengths >> 24))
			return false;
	}
	return false;
}

/* Binary search on the prefix lengths that exist: Waldvogel et al., Scalable High Speed IP Routing Lookups, 1997. */
__noinline __u32 class6(__u64 hi, __u64 lo)
{
	struct address a = { hi, lo };
	__u32 class = 0, from = 0, to = lengths6_count;

	for (int i = 0; i < 8 && from < to; i++) {
		__u32 middle = opaque((from + to) / 2), length, meta;

		if (middle >= sizeof(lengths6))
			break;
		length = lengths6[middle];
		if (!find_prefix(&buckets6, 0, buckets6_mask, buckets6_seed, masked(a, length), length + 1, &meta)) {
			to = opaque(middle);
			continue;
		}
		class = meta & 0xffff;
		if (!(meta & META_MARKER))
			break;
		from = opaque(middle + 1);
	}
	return class;
}

static __always_inline __u32 classify(struct address a, bool v6)
{
	__u32 bit;

	if (!v6)
		return filter4_mask && listed4(a.lo) ? class4(a.lo) : 0;
	if (!lengths6_count)
		return 0;
	bit = ((a.hi >> 32) * 0x9e3779b97f4a7c15) >> 44;
	if (!(table(filter6)[bit >> 6] >> (bit & 63) & 1))
		return 0;
	return class6(a.hi, a.lo);
}
