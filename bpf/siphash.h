/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SipHash, a keyed hash that cannot be forged without the key (Aumasson and Bernstein, SipHash: a fast short-input PRF,
 * 2012). The program uses SipHash-2-4, and SipHash-1-3 where time counts and a forgery would do little harm. Words are in
 * the host's byte order, which is little endian, as in SipHash.
 */
#pragma once

#include "kernel.h"

struct siphash {
	__u64 a, b, c, d; /* v0 to v3 of the paper */
};

static __always_inline __u64 rotated(__u64 x, __u32 left)
{
	return x << left | x >> (64 - left);
}

static __always_inline void siphash_round(struct siphash *h)
{
	h->a += h->b;
	h->c += h->d;
	h->b = rotated(h->b, 13) ^ h->a;
	h->d = rotated(h->d, 16) ^ h->c;
	h->a = rotated(h->a, 32);
	h->c += h->b;
	h->a += h->d;
	h->b = rotated(h->b, 17) ^ h->c;
	h->d = rotated(h->d, 21) ^ h->a;
	h->c = rotated(h->c, 32);
}

static __always_inline struct siphash siphash_begin(const __u64 key[2])
{
	struct siphash h = {
		.a = key[0] ^ 0x736f6d6570736575,
		.b = key[1] ^ 0x646f72616e646f6d,
		.c = key[0] ^ 0x6c7967656e657261,
		.d = key[1] ^ 0x7465646279746573,
	};
	return h;
}

/* Adds the next 8 bytes, with this number of rounds. */
static __always_inline void siphash_compress(struct siphash *h, __u64 word, __u32 rounds)
{
	h->d ^= word;
#pragma unroll
	for (__u32 i = 0; i < rounds; i++)
		siphash_round(h);
	h->a ^= word;
}

/* Returns the hash, after this number of final rounds. */
static __always_inline __u64 siphash_finish(struct siphash *h, __u32 rounds)
{
	h->c ^= 0xff;
#pragma unroll
	for (__u32 i = 0; i < rounds; i++)
		siphash_round(h);
	return h->a ^ h->b ^ h->c ^ h->d;
}

/* Adds the next 8 bytes to a SipHash-2-4. */
static __always_inline void siphash_add(struct siphash *h, __u64 word)
{
	siphash_compress(h, word, 2);
}

/* Adds the remaining bytes, up to 7, and returns the hash. length is that of the whole text. */
static __always_inline __u64 siphash_end(struct siphash *h, __u64 rest, __u32 length)
{
	siphash_compress(h, rest | (__u64)length << 56, 2);
	return siphash_finish(h, 4);
}

/* siphash_add() and siphash_end() for SipHash-1-3. */
static __always_inline void siphash13_add(struct siphash *h, __u64 word)
{
	siphash_compress(h, word, 1);
}

static __always_inline __u64 siphash13_end(struct siphash *h, __u64 rest, __u32 length)
{
	siphash_compress(h, rest | (__u64)length << 56, 1);
	return siphash_finish(h, 3);
}
