/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sets of domain names. A name is in a set if it, or a domain above it, is listed. So the labels are hashed from the
 * last one on, and the table is searched after each label. The hash has a secret key, so nobody can construct two names
 * with the same hash. internal/compile/xdp/names.go fills the table.
 */
#pragma once

#include "dnsmessage.h"
#include "siphash.h"

enum {
	NAME_DEPTH_MAX = 16, /* labels of a listed name */
	NAME_SLOTS = 5,
	NAME_PROBES = 8,
};

struct name_bucket {
	__u64 hash[NAME_SLOTS];
	__u32 sets[NAME_SLOTS]; /* the sets that list the name, one bit each; 0: the slot is empty */
	__u32 more;             /* look into the next bucket too */
};

const volatile __u32 name_buckets;   /* 0: no rule asks for names */
const volatile __u32 name_depths;    /* the numbers of labels that listed names have, one bit each */
const volatile __u32 name_root_sets; /* the sets that list the root, and so contain every name */
const volatile __u64 name_key[2];

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct name_bucket);
} names SEC(".maps");

/* Eight bytes with ASCII letters in lower case; other bytes are unchanged. The top bits mark the bytes from A to Z. */
static __always_inline __u64 lower_case(__u64 text)
{
	__u64 low = text & 0x7f7f7f7f7f7f7f7f;
	__u64 from_a = low + 0x3f3f3f3f3f3f3f3f, past_z = low + 0x2525252525252525;

	return text | ((from_a ^ past_z) & ~text & 0x8080808080808080) >> 2;
}

/* Hashes a label, its length byte included, in words of 8 bytes. The last word is padded with zeros. */
__noinline int hash_label(struct dns_message *m, __u32 at)
{
	struct siphash h;
	__u32 size;
	__u8 *text;

	if (!m)
		return 0;
	h = m->hash;
	text = m->text + (at & (DNS_TEXT - 1));
	size = *text + 1;
	for (__u32 i = 0; i <= DNS_LABEL_MAX; i += 8) {
		__u64 word = *(__u64 *)(text + i);

		if (i >= size)
			break;
		if (size - i < 8)
			word &= (1ULL << (size - i) * 8) - 1;
		word = lower_case(word);
		siphash13_add(&h, word);
	}
	m->hash = h;
	return 0;
}

/* The hash of the labels so far. One round for each word and three at the end make it SipHash-1-3, as hash tables use it. */
static __always_inline __u64 hash_of(struct siphash h)
{
	return siphash_finish(&h, 3);
}

/* The sets that list the name with this hash, one bit each. */
static __always_inline __u32 sets_listing(__u64 hash)
{
	__u32 home = (hash >> 32) * name_buckets >> 32;

	for (int i = 0; i < NAME_PROBES; i++) {
		__u32 number = home + i;
		struct name_bucket *b = bpf_map_lookup_elem(&names, &number);

		if (!b)
			return 0;
#pragma unroll
		for (int slot = 0; slot < NAME_SLOTS; slot++)
			if (b->hash[slot] == hash)
				return b->sets[slot];
		if (!b->more)
			return 0;
	}
	return 0;
}

/* The sets that have the name of a query, one bit each. A global function, which the verifier checks once. */
__noinline __u32 name_sets(struct dns_message *m)
{
	__u64 key[2] = { name_key[0], name_key[1] };
	__u32 sets = name_root_sets;

	if (!m)
		return 0;
	m->hash = siphash_begin(key);
	for (__u32 depth = 1; depth <= NAME_DEPTH_MAX; depth++) {
		if (depth > m->labels || !(name_depths >> depth))
			break;
		hash_label(m, DNS_NAME_AT + m->label[(m->labels - depth) & DNS_LABELS_MAX]);
		if (name_depths >> depth & 1)
			sets |= sets_listing(hash_of(m->hash));
	}
	return sets;
}
