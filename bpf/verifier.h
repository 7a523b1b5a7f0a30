/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Helpers that keep a value from the compiler or from the verifier. The verifier (kernel/bpf/verifier.c) follows values that
 * it knows, and LLVM leaves out what it proves: each helper here says which of the two it is for.
 */
#pragma once

#include "kernel.h"

/*
 * Always zero, which the verifier cannot know. It follows every constant that a branch tests (kernel/bpf/verifier.c,
 * mark_chain_precision), and so would verify the rest of the program once for each combination of failed checks.
 */
__u64 zero SEC(".data.zero");

static __always_inline __u64 opaque(__u64 value)
{
	return value +
	       *(volatile __u64 *)&zero; /* before Linux 6.10 the verifier forgets after ^ that 32 bits are 32 */
}

/*
 * A length that is known to be from 1 to most, a power of two, as the verifier knows it, too: before Linux 6.8 it learns
 * nothing from a comparison with 0 (kernel/bpf/verifier.c, reg_set_min_max).
 */
static __always_inline __u32 known_length(__u32 length, __u32 most)
{
	length--;
	asm volatile("" : "+r"(length)); /* or LLVM leaves the mask out, as it knows better */
	return (length & (most - 1)) + 1;
}

/*
 * The first element of a global whose size is the policy's: the loader sets it, so in C it is small, and the compiler is not to know so.
 * The address of a global is a constant in the program, where a map lookup would cost a call or a bounds check. The verifier compares
 * the bounds of an index with the size that the loader has set.
 */
#define table(global)                                  \
	({                                             \
		typeof(&(global)[0]) start = (global); \
		asm("" : "+r"(start));                 \
		start;                                 \
	})

/* A read that the compiler neither repeats nor leaves out, as another CPU may write meanwhile. */
static __always_inline __u64 read_once(__u64 *word)
{
	return *(volatile __u64 *)word;
}

/* A read that is not done before those that stand before it. */
static __always_inline __u64 read_ordered(__u64 *word)
{
	return __sync_fetch_and_add(word, 0);
}
