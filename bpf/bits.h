/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Arithmetic of bits. */
#pragma once

#include "kernel.h"

#define BIT(n) (1ULL << (n))

/* The number of bits that are set, counted by halves (Hacker's Delight, 5-1). BPF has no such instruction. */
static __always_inline __u32 population(__u64 x)
{
	x -= (x >> 1) & 0x5555555555555555;
	x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (x * 0x0101010101010101) >> 56;
}

/* The number of the lowest bit that is set, which is the count of the bits below it (Hacker's Delight, 5-4). */
static __always_inline __u32 lowest_bit(__u64 bits)
{
	return population((bits & -bits) - 1);
}
