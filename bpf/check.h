/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The built-in checks. internal/packet/check.go says what each means; a test compares the two lists. */
#pragma once

enum check {
	CHECK_TRUNCATED,
	CHECK_IP_HEADER,
	CHECK_VLAN_DEPTH,
	CHECK_SOURCE_MAC,
	CHECK_TTL_ZERO,
	CHECK_SOURCE_ROUTE,
	CHECK_IP_OPTIONS,
	CHECK_TINY_FRAGMENT,
	CHECK_FRAGMENT_OVERFLOW,
	CHECK_ATOMIC_FRAGMENT,
	CHECK_EXT_HEADERS,
	CHECK_EXT_ORDER,
	CHECK_LAND,
	CHECK_SOURCE_ADDRESS,
	CHECK_BOGON_SOURCE,
	CHECK_OWN_SOURCE,
	CHECK_ND_HOP_LIMIT,
	CHECK_TCP_HEADER,
	CHECK_TCP_FLAGS,
	CHECK_PORT_ZERO,
	CHECK_UDP_SOURCE_ZERO,
	CHECK_TCP_OPTIONS,
	CHECK_SYN_DATA,
	CHECK_SYN_LOW_PORT,
	CHECK_SYN_NO_MSS,
	CHECK_SYN_WINDOW_ZERO,
	CHECK_ACK_ZERO,
	CHECK_UDP_LENGTH,
	CHECK_UDP6_CHECKSUM,
	CHECK_REFLECTOR_SOURCE,
	CHECK_ICMP_TYPE,
	CHECK_ICMP_LARGE,
	CHECK_IP_PROTOCOL,
	CHECK_IP_CHECKSUM,
	NUM_CHECKS,
};

/* The checks that drop, a bit each. Constant from load on: the verifier removes the code of the others. */
const volatile __u64 enabled_checks;

/* Those that only count. None of them is enabled. */
const volatile __u64 observed_checks;

#define BIT(n) (1ULL << (n))

/*
 * Always zero, which the verifier cannot know. It follows every constant that a branch tests (kernel/bpf/verifier.c,
 * mark_chain_precision), and so would walk the rest of the program once for each combination of failed checks.
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
 * Notes that a packet fails a check, enabled or not: to ask first would cost every packet more than the conditions do.
 * What is not enabled is struck out at the end.
 */
#define fail_if(failed, check, condition)                         \
	do {                                                      \
		if (condition)                                    \
			(failed) = opaque((failed) | BIT(check)); \
	} while (0)

/* Whether a check is enabled, to be asked before a condition that is dear. */
#define enabled(check) ((enabled_checks | observed_checks) & BIT(check))

/* The bits that are set, by halves (Hacker's Delight, 5-1). BPF has no such instruction. */
static __always_inline __u32 population(__u64 x)
{
	x -= (x >> 1) & 0x5555555555555555;
	x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (x * 0x0101010101010101) >> 56;
}

/* The number of the lowest bit that is set: so many bits are below it (5-4). */
static __always_inline __u32 lowest_bit(__u64 bits)
{
	return population((bits & -bits) - 1);
}
