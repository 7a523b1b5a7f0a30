/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Helpers that hide a value from the compiler or from the verifier. The verifier (kernel/bpf/verifier.c) tracks known
 * values, and LLVM removes code that it proves to be redundant. Each helper says which of the two it is for.
 */
#pragma once

#include "kernel.h"

/*
 * Always zero, which the verifier cannot know. The verifier tracks every constant that a branch tests (kernel/bpf/verifier.c,
 * mark_chain_precision). Without this it would verify the rest of the program once for each combination of failed checks.
 */
__u64 zero SEC(".data.zero");

static __always_inline __u64 opaque(__u64 value)
{
	return value +
	       *(volatile __u64 *)&zero; /* before Linux 6.10 the verifier forgets after ^ that 32 bits are 32 */
}

/*
 * Bounds a length that is from 1 to most, a power of two, so that the verifier knows the bounds: before Linux 6.8 it
 * learns nothing from a comparison with 0 (kernel/bpf/verifier.c, reg_set_min_max).
 */
static __always_inline __u32 known_length(__u32 length, __u32 most)
{
	length--;
	asm volatile("" : "+r"(length)); /* otherwise LLVM removes the mask, because it knows the bounds */
	return (length & (most - 1)) + 1;
}

/* A copy of a value. LLVM knows nothing about the copy, but the verifier still knows what it knew about the value. */
#define hidden(value)                          \
	({                                     \
		typeof(value) known = (value); \
		asm("" : "+r"(known));         \
		known;                         \
	})

/*
 * The first element of a global table whose size depends on the policy. In C it is declared small, and the loader sets
 * the size, so it is hidden from LLVM. The address of a global is a constant in the program, while a
 * map lookup costs a call or a bounds check. The verifier compares the bounds of an index with the loader's size.
 */
#define table(global) hidden(&(global)[0])

/* A read that the compiler neither repeats nor removes, because another CPU may write at the same time. */
static __always_inline __u64 read_once(__u64 *word)
{
	return *(volatile __u64 *)word;
}

/* A read that is not moved before the reads above it. */
static __always_inline __u64 read_ordered(__u64 *word)
{
	return __sync_fetch_and_add(word, 0);
}
