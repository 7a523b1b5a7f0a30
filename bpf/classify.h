/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Maps an address to its class. A class is a number, the same for all addresses that the policy does not distinguish. One lookup is
 * enough, however many sets there are. internal/model/addrs builds the tables, and documents their layout.
 */
#pragma once

#include "address.h"
#include "bits.h"
#include "packet.h"
#include "verifier.h"

/* The tables that every packet reads are globals: see table(). The masks and shifts below are constants to the verifier. */
__u64 filter4[8] SEC(".data.filter4");     /* a bit per block of 2^filter4_shift addresses: whether any has a class */
__u64 index4[8] SEC(".data.index4");       /* per 32 blocks of /24: which have a line, and where their lines start */
__u16 background4[8] SEC(".data.back4");   /* per /16: the class of its /24s without a line */
__u64 host_filter4[8] SEC(".data.hosts4"); /* a Bloom filter: two bits of one word per host */
__u64 filter6[8] SEC(".data.filter6");     /* a bit per hash of a /32: whether any prefix is there */

const volatile __u32 filter4_shift;
const volatile __u32 filter4_mask; /* for the index of a 64-bit word of filter4; 0: there is no filter4 */
const volatile bool filter4_hosts; /* whether filter4 covers listed hosts too; if not, only hosts4 has them */
const volatile bool have_background4;
const volatile bool have_lines4;
const volatile __u32 hosts4_key;
const volatile __u32 hosts4_factor; /* odd */
const volatile __u32 hosts4_narrow; /* number of lines with 18 bits per host; 0: none */
const volatile __u32 hosts4_wide;   /* number of lines with 32 bits per host, which follow the narrow lines; 0: none */
const volatile __u32 hosts4_class;  /* the class of all hosts; 0: see host_classes4, they have several classes */
const volatile __u32 hosts4_filter; /* number of words of host_filter4; 0: there is no such filter */
const volatile bool hosts4_follow;  /* whether a CPU uses host_filter4 only after an address that was not listed */
const volatile __u32 buckets6_mask;
const volatile __u64 buckets6_seed;
const volatile __u32 lengths6_count; /* 0 when the IPv6 table is empty */
const volatile __u8 lengths6[129];

/* A line has the classes of all addresses of a /24, where these have more than one class. */
struct line {
	__u64 hosts[4]; /* a bit per address: 1: its class is inside, 0: its class is outside */
	__u16 inside;
	__u16 outside;
	__u32 full; /* 1 + the number in full4 when there are more than two classes */
	__u64 reserved[3];
};

struct full {
	__u16 class[256];
};

enum {
	NARROW_WORDS = 7,      /* of 4 slots each */
	NARROW_MORE = 1 << 14, /* a bit of rest: further addresses of the line are in wide lines */
	WIDE_SLOTS = 10,
	WIDE_MORE = 1, /* look into the next line too */
	WIDE_SCAN = 2, /* there is no perfect hash: numbers may be in any slot */
	HOST_CLASSES = 32,
	HOST_PROBES = 8,
};

/*
 * One cache line of listed addresses. A narrow line has 18 bits of each address: 16 in a slot, and two in rest. For slot 4 * word + group,
 * the two are the bits word and 7 + word of the given group of 16 bits in rest. Free slots hold 18 bits that no address of the line has.
 */
union hosts {
	struct {
		__u64 slots[NARROW_WORDS];
		__u64 rest;
	} narrow;
	struct {
		__u32 number[WIDE_SLOTS];
		__u16 class[WIDE_SLOTS]; /* 0: the slot is empty */
		__u32 factor;            /* for slot_in_wide(); its two lowest bits are WIDE_MORE and WIDE_SCAN */
	} wide;
};

/* The classes of the addresses of a narrow line, by slot. */
struct host_classes {
	__u16 class[HOST_CLASSES];
};

/* A bucket of a hash of prefixes. */
struct bucket {
	struct address key[3];
	__u32 meta[3];
	__u32 lengths; /* in bytes 0 to 2 the prefix lengths + 1, 0 in an empty slot; byte 3: look into the next bucket too */
};

enum {
	BUCKET_SLOTS = 3,
	BUCKET_PROBES = 8,
	BUCKET_RETRIES = 8, /* for a writer that changes each bucket once, or one a few times; more would be too slow */
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
	__type(value, union hosts);
} hosts4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct host_classes);
} host_classes4 SEC(".maps");

/* Whether the last address that this CPU looked up was listed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} hosts4_found SEC(".maps");

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

/*
 * A keyed permutation of the 32-bit numbers. It is a bijection, so the number of the line and the remaining bits
 * together identify the address. The last step is a product: its upper bits depend on all bits, and before Linux 6.10
 * the verifier knows that a 32-bit product has 32 bits, but not that an XOR has.
 */
static __always_inline __u32 permuted(__u32 addr)
{
	__u32 n = (addr ^ hosts4_key) * hosts4_factor;

	n ^= n >> 16;
	return n * 0x2c1b3c6d;
}

/*
 * Maps a 32-bit number to 0 ... of-1 in proportion (Lemire, 2019). Before Linux 6.10 the verifier knows the bounds of a
 * product only if the right factor is a constant (kernel/bpf/verifier.c, adjust_scalar_min_max_vals). LLVM may swap the
 * factors, so this is assembly.
 */
static __always_inline __u32 share(__u32 number, __u32 of)
{
	__u64 product = number;

	asm("%0 *= %1" : "+r"(product) : "r"((__u64)of));
	return product >> 32;
}

/* A second hash of an address, of which the upper bits are used: Fibonacci hashing (Knuth, volume 3, 6.4). */
static __always_inline __u32 second(__u32 number)
{
	return number * 0x9e3779b1;
}

static __always_inline bool in_host_filter(__u32 number)
{
	__u64 word = table(host_filter4)[share(number, hosts4_filter)];
	__u32 bits = second(number);

	return word >> (bits >> 26) & word >> (bits >> 20 & 63) & 1;
}

/* The lowest and the highest bit of each slot of a word. */
#define LOW_BITS 0x0001000100010001ULL
#define HIGH_BITS 0x8000800080008000ULL

/* The two upper bits of a number, as rest of a narrow line stores them, repeated for every slot. */
static __always_inline __u64 upper_bits(__u32 number)
{
	return (number >> 16 & 1) * (0x7f * LOW_BITS) | (number >> 17 & 1) * (0x3f80 * LOW_BITS);
}

/* For each slot, whether its two bits in rest differ from the two upper bits of the number. The result is at the lower bit of the two. */
static __always_inline __u64 upper_differ(union hosts *line, __u32 number)
{
	__u64 differ = line->narrow.rest ^ upper_bits(number);

	return differ | differ >> 7;
}

/*
 * Compares the four slots of a word with a number. In the result, the highest bit of a slot is 0 if the slot holds the number: its 16 bits
 * are equal, and its highest bit in `upper` is 0. No slot borrows from the next in the subtraction, because its highest bit was set before.
 * The method of Hacker's Delight, 6-1, is shorter, but not exact.
 */
static __always_inline __u64 without_match(__u64 slots, __u64 value, __u64 upper)
{
	__u64 differ = slots ^ value;

	return ((differ | HIGH_BITS) - LOW_BITS) | differ | upper;
}

/* The class of an address in a narrow line, when listed addresses have several classes. */
static __always_inline __u32 class_of_slot(union hosts *line, __u32 at, __u64 value, __u64 upper)
{
	struct host_classes *classes = bpf_map_lookup_elem(&host_classes4, &at);
	__u64 found = 0;
	__u32 word = 0;

#pragma unroll
	for (; word < NARROW_WORDS; word++) {
		found = ~without_match(line->narrow.slots[word], value, upper << (15 - word)) & HIGH_BITS;
		if (found)
			break;
	}
	return classes ? classes->class[(word * 4 + lowest_bit(found) / 16) & (HOST_CLASSES - 1)] : 0;
}

/*
 * The class of the address with this number in its narrow line, 0 when it is not there. The function compares all slots before it branches:
 * the line is mostly not in the cache. A branch on each word would wait for the line, and would be mispredicted.
 */
static __always_inline __u32 class_in_narrow(union hosts *line, __u32 at, __u32 number)
{
	__u64 value = (__u16)number * LOW_BITS, upper = upper_differ(line, number), all = -1;
	__u64 shifted = upper << (15 - NARROW_WORDS);

#pragma unroll
	for (int word = NARROW_WORDS - 1; word >= 0; word--) {
		shifted <<= 1;
		all &= without_match(line->narrow.slots[word], value, shifted);
		asm("" : "+r"(all), "+r"(shifted)); /* one word after the other; otherwise LLVM would spill registers */
	}
	if (!(~all & HIGH_BITS))
		return 0;
	return hosts4_class ? hosts4_class : class_of_slot(line, at, value, upper);
}

/*
 * The slot of a number in a wide line with a perfect hash: the line has a factor with which all its numbers have different slots. A loop
 * over the slots would end at a random slot, which the CPU would mispredict for most packets of listed hosts. Before Linux 6.10 the verifier
 * does not know that a 32-bit product of two unknown numbers has 32 bits (kernel/bpf/verifier.c, adjust_scalar_min_max_vals). The assembly
 * keeps this from LLVM too, so LLVM truncates the product to 32 bits.
 */
static __always_inline __u32 slot_in_wide(__u32 factor, __u32 number)
{
	__u64 product = number;

	asm("%0 *= %1" : "+r"(product) : "r"((__u64)factor));
	return share(product, WIDE_SLOTS);
}

/* The class of an address in the wide lines. There are few wide lines, so they are mostly in the cache. */
static __always_inline __u32 class_by_wide(__u32 number)
{
	__u32 at = share(second(number), hosts4_wide);

	for (int i = 0; i < HOST_PROBES; i++) {
		__u32 behind = hosts4_narrow + at, factor, found;
		union hosts *line = bpf_map_lookup_elem(&hosts4, &behind);

		if (!line)
			return 0;
		factor = line->wide.factor;
		found = slot_in_wide(factor, number);
		/* An empty slot looks like number 0 of class 0. A listed number 0 is in slot 0 or, without a perfect hash, before any empty slot. */
		if (line->wide.number[found] == number)
			return line->wide.class[found];
		if (factor & WIDE_SCAN) {
#pragma unroll
			for (int slot = 0; slot < WIDE_SLOTS; slot++)
				if (line->wide.number[slot] == number)
					return line->wide.class[slot];
		}
		if (!(factor & WIDE_MORE))
			return 0;
		if (++at == hosts4_wide)
			at = 0;
	}
	return 0;
}

static __always_inline __u32 class_by_number(__u32 number)
{
	if (hosts4_narrow) {
		__u32 at = share(number, hosts4_narrow), class;
		union hosts *line = bpf_map_lookup_elem(&hosts4, &at);

		if (!line)
			return 0;
		class = class_in_narrow(line, at, number);
		if (class || !(line->narrow.rest & NARROW_MORE))
			return class;
	}
	return hosts4_wide ? class_by_wide(number) : 0;
}

/*
 * The filter saves most unlisted addresses the access to the line, which is not in the cache. For listed addresses it is a second
 * access, and it displaces lines from the cache. So a CPU uses the filter only while the last address that it looked up was not listed.
 */
static __always_inline __u32 class_of_host(__u32 addr)
{
	__u32 number = permuted(addr), first = 0, class;
	__u32 *found = hosts4_follow ? bpf_map_lookup_elem(&hosts4_found, &first) : NULL;

	if (hosts4_filter && !(found && *found) && !in_host_filter(number))
		return 0;
	class = class_by_number(number);
	if (found && !!class != *found)
		*found = !!class;
	return class;
}

/* The class of an address whose /24 has a line, -1 when it has none. */
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

/* Whether any address of this address's block may have a class other than 0. */
static __always_inline bool in_filter4(__u32 addr)
{
	__u32 block = addr >> filter4_shift;

	return table(filter4)[(block >> 6) & filter4_mask] >> (block & 63) & 1;
}

/* The class of an address that is in the filter. Listed hosts are searched where there is neither a line nor a background. */
static __always_inline __u32 class_in_filter(__u32 addr)
{
	int class = have_lines4 ? class_by_line(addr) : -1;

	if (class < 0 && have_background4)
		class = table(background4)[addr >> 16] ?: -1;
	if (class >= 0)
		return class;
	return hosts4_narrow || hosts4_wide ? class_of_host(addr) : 0;
}

/* The class of an IPv4 address, 0 when no set has it. A global function. */
__noinline __u32 class4(__u32 addr)
{
	if (filter4_mask && in_filter4(addr))
		return class_in_filter(addr);
	if (filter4_mask && filter4_hosts)
		return 0;
	return hosts4_narrow || hosts4_wide ? class_of_host(addr) : 0;
}

/* The class of an IPv4 address that is in the filter. The generated entry calls it after it has tested the filter itself. */
__noinline __u32 class4_in_filter(__u32 addr)
{
	return class_in_filter(addr);
}

/* The class of the host with this number. The generated entry calls it after it has tested the filter of hosts itself. */
__noinline __u32 class4_of_host(__u32 number)
{
	return class_by_number(number);
}

/* The hash of a prefix. The loader draws a new seed for each table. */
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
 * Finds the meta word of a prefix in a table of buckets. Returns false when it is not there. If `changes` is set, user space may change the
 * table during the search. It may move an entry: it writes the entry to a later place, and then gives the old place to another entry. The
 * search could miss the entry in both places. Therefore a single read gets the lengths and whether the search goes on, and a second read
 * follows after the search of the bucket. If the second read differs from the first, the bucket is searched again.
 */
static __always_inline bool find_prefix(void *table, bool changes, __u32 base, __u32 mask, __u64 seed,
					struct address key, __u32 length, __u32 *meta)
{
	__u32 hash = hash_prefix(seed, key, length), at = 0;

	for (int i = 0; i < (changes ? BUCKET_PROBES + BUCKET_RETRIES : BUCKET_PROBES) && at < BUCKET_PROBES; i++) {
		__u32 number = base + ((hash + at) & mask), slot, lengths;
		struct bucket *b = bpf_map_lookup_elem(table, &number);

		if (!b)
			return false;
		lengths = *(volatile __u32 *)&b->lengths;
		slot = slot_in_bucket(b, lengths, key, length);
		if (slot < BUCKET_SLOTS) {
			*meta = b->meta[slot];
			return true;
		}
		if (changes && *(volatile __u32 *)&b->lengths != lengths)
			continue;
		if (!(lengths >> 24))
			return false;
		at++;
	}
	return false;
}

/* Binary search on the prefix lengths in use: Waldvogel et al., Scalable High Speed IP Routing Lookups, 1997. */
__noinline __u32 class6(__u64 hi, __u64 lo)
{
	struct address a = { hi, lo };
	__u32 class = 0, from = 0, to = lengths6_count;

	for (int i = 0; i < 8 && from < to; i++) {
		__u32 middle = opaque((from + to) / 2), length, meta;

		if (middle >= sizeof(lengths6))
			break;
		length = lengths6[middle];
		if (!find_prefix(&buckets6, false, 0, buckets6_mask, buckets6_seed, masked(a, length), length + 1,
				 &meta)) {
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

	if (!v6) {
		if (filter4_hosts && !in_filter4(a.lo)) /* spares the call */
			return 0;
		return filter4_mask || hosts4_narrow || hosts4_wide ? class4(a.lo) : 0;
	}
	if (!lengths6_count)
		return 0;
	bit = ((a.hi >> 32) * 0x9e3779b97f4a7c15) >> 44;
	if (!(table(filter6)[bit >> 6] >> (bit & 63) & 1))
		return 0;
	return class6(a.hi, a.lo);
}
