/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The checks of addresses, and of the IP protocol: some source addresses are valid for some protocols only. */
#pragma once

#include "bits.h"
#include "check.h"
#include "packet.h"

struct prefix {
	__u64 hi;
	__u64 lo;
	__u8 length;
};

/* A mask of the upper n bits, for n from 0 to 64. It takes two shifts, because one shift by 64 is undefined. */
static __always_inline __u64 high_bits(__u32 n)
{
	return ~0ULL << ((64 - n) / 2) << ((65 - n) / 2);
}

static __always_inline struct address masked(struct address a, __u32 length)
{
	struct address m = {
		.hi = a.hi & high_bits(length < 64 ? length : 64),
		.lo = a.lo & high_bits(length > 64 ? length - 64 : 0),
	};
	return m;
}

#define V4(a, b, c, d, n) { 0, 0xffff00000000 | (__u64)(a) << 24 | (b) << 16 | (c) << 8 | (d), 96 + (n) }

/* The special purpose prefixes that are not globally reachable (RFC 6890 and the IANA registries it started). */
static const struct prefix bogons4[] = {
	V4(0, 0, 0, 0, 8),      V4(10, 0, 0, 0, 8),    V4(100, 64, 0, 0, 10),   V4(127, 0, 0, 0, 8),
	V4(169, 254, 0, 0, 16), V4(172, 16, 0, 0, 12), V4(192, 0, 0, 0, 24),    V4(192, 0, 2, 0, 24),
	V4(192, 168, 0, 0, 16), V4(198, 18, 0, 0, 15), V4(198, 51, 100, 0, 24), V4(203, 0, 113, 0, 24),
	V4(224, 0, 0, 0, 4),    V4(240, 0, 0, 0, 4),
};

static const struct prefix bogons6[] = {
	{ 0, 0, 8 },
	{ 0x0064ff9b00010000, 0, 48 },
	{ 0x0100000000000000, 0, 64 },
	{ 0x20010db800000000, 0, 32 },
	{ 0x3fff000000000000, 0, 20 },
	{ 0xfc00000000000000, 0, 7 },
	{ 0xfe80000000000000, 0, 10 },
	{ 0xfec0000000000000, 0, 10 },
	{ 0xff00000000000000, 0, 8 },
};

static __always_inline bool in_prefix(struct address a, const struct prefix *p)
{
	struct address m = masked(a, p->length);

	return m.hi == p->hi && m.lo == p->lo;
}

static __always_inline bool is_bogon(struct frame *f)
{
	struct address src = f->packet.src;

	if (f->packet.family) {
		/* link-local and unspecified addresses: neighbor discovery and DHCPv6 use them as sources */
		if ((f->packet.proto == IPPROTO_ICMPV6 || f->packet.proto == IPPROTO_UDP) &&
		    (src.hi >> 54 == 0xfe80 >> 6 || (!src.hi && !src.lo)))
			return false;
		if (src.hi == 0x0064ff9b00000000 && !(src.lo >> 32)) /* NAT64, RFC 6052 */
			return false;
#pragma unroll
		for (int i = 0; i < sizeof(bogons6) / sizeof(*bogons6); i++)
			if (in_prefix(src, &bogons6[i]))
				return true;
		return false;
	}
	if (f->packet.proto == IPPROTO_UDP && src.lo == 0xffff00000000) /* DHCP */
		return false;
#pragma unroll
	for (int i = 0; i < sizeof(bogons4) / sizeof(*bogons4); i++)
		if (in_prefix(src, &bogons4[i]))
			return true;
	return false;
}

/* Multicast, broadcast and loopback may not be sources on a wire. */
static __always_inline bool is_no_source(struct packet *p)
{
	__u32 v4 = p->src.lo, first = hidden(v4 >> 24); /* or LLVM masks the address for each comparison */

	if (p->family)
		return p->src.hi >> 56 == 0xff || (!p->src.hi && p->src.lo == 1);
	return first == 127 || first >> 4 == 0xe || v4 == 0xffffffff;
}

/* The checks that check_addresses() makes. It is not called when none of them is on. */
#define ADDRESS_CHECKS (BIT(CHECK_LAND) | BIT(CHECK_SOURCE_ADDRESS) | BIT(CHECK_BOGON_SOURCE) | BIT(CHECK_IP_PROTOCOL))

static __always_inline void check_addresses(struct frame *f)
{
	__u32 proto = f->packet.proto;

	fail_if(f->failed, CHECK_LAND, f->packet.src.lo == f->packet.dst.lo && f->packet.src.hi == f->packet.dst.hi);
	fail_if(f->failed, CHECK_SOURCE_ADDRESS, is_no_source(&f->packet));
	if (enabled(CHECK_BOGON_SOURCE))
		fail_if(f->failed, CHECK_BOGON_SOURCE, is_bogon(f));
	fail_if(f->failed, CHECK_IP_PROTOCOL, (proto >= 148 && proto <= 252) || proto == 255);
}
