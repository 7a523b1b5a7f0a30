/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Decides which packets this host, or a host behind it, would answer: the frame is for a device of this host, and both addresses are those
 * of single hosts. XDP sees all frames that the device receives, and has neither pkt_type nor a route.
 */
#pragma once

#include "dynamic.h"
#include "packet.h"
#include "parse.h"
#include "protection.h"
#include "verifier.h"

enum {
	SHOWN_MACS = 4,
	END_MARKS = 1 << 12, /* a byte for each value of the last 12 bits of an address, with the flags: */
	MARK_OWN = 1,        /* an own address may have these last bits */
	MARK_BROADCAST = 2,  /* a broadcast address may have them */
	END_WORDS = 1 << 10, /* a power of two */
	MAC_SHIFT =
		15, /* a left shift that removes from the first 64 bits of a frame all behind the destination and the group bit of the source */
};

#define BROADCAST_WORD (1ULL << 49) /* a flag beside a broadcast IPv4 address; words without it are MAC addresses */

/* The addresses of this host. User space (internal/compile/image/ends.go) writes them, also while packets arrive. */
struct host_ends {
	__u64 shown[SHOWN_MACS]; /* some of the MAC addresses, shifted by MAC_SHIFT */
	__u8 marks[END_MARKS];
	__u64 word
		[END_WORDS]; /* all MAC addresses and broadcast addresses, sorted; free words have the largest 63-bit number */
};

struct host_ends host_ends SEC(".data.ends");

/*
 * The destination MAC address of a frame, in the form of host_ends.shown. The word also has the group bit of the source, and no word of
 * host_ends has that bit. So a frame from a group equals none of them. The frame must have at least 8 bytes.
 */
static __always_inline __u64 mac_word(void *data)
{
	return *(__u64 *)data << MAC_SHIFT;
}

/*
 * Whether the destination of a frame is in host_ends.shown, which has no groups, and the frame is not from a group. Without a link layer, all packets
 * are for this host.
 */
static __always_inline bool is_shown(void *data)
{
	__u64 mac = mac_word(data);

	if (!LINK_HEADER)
		return true;

#pragma unroll
	for (__u32 i = 0; i < SHOWN_MACS; i++)
		if (read_once(&host_ends.shown[i]) == mac)
			return true;
	return false;
}

/* Whether a frame is to a group, or from one. */
static __always_inline bool is_with_group(struct ethernet *eth)
{
	return LINK_HEADER && (eth->destination[0] | eth->source[0]) & bpf_htons(0x0100);
}

/* Whether host_ends has a word: a binary search without a branch, because each branch is one more path for the verifier. */
static __always_inline bool has_word(__u64 word)
{
	__u64 at = 0;

#pragma nounroll
	for (__u32 step = END_WORDS / 2; step; step /= 2)
		at = opaque(at + ((host_ends.word[(at + step) & (END_WORDS - 1)] - word - 1) >> 63) * step);
	return host_ends.word[at & (END_WORDS - 1)] == word;
}

/* Whether an address is surely not an own address or a broadcast address of this host: none of these has its last bits. */
static __always_inline bool is_surely_foreign(struct address a)
{
	return !host_ends.marks[a.lo & (END_MARKS - 1)];
}

/* Whether an address may be a broadcast address of this host, by its last bits. */
static __always_inline bool may_be_broadcast(struct address a)
{
	return host_ends.marks[a.lo & (END_MARKS - 1)] & MARK_BROADCAST;
}

static __always_inline bool is_broadcast(struct address a)
{
	return may_be_broadcast(a) && has_word(BROADCAST_WORD | (__u32)a.lo);
}

/* Whether an address is in 0.0.0.0/8, or is ::. Like the addresses of is_no_source(), these get no answer. */
static __always_inline bool is_unspecified(struct address a, bool v6)
{
	return v6 ? !a.hi && !a.lo : !((__u32)a.lo >> 24);
}

static __always_inline bool is_loopback(struct address a, bool v6)
{
	return v6 ? !a.hi && a.lo == 1 : (__u32)a.lo >> 24 == 127;
}

/*
 * Whether a destination is not the address of a single host. In IPv6, it is not if it begins with 64 zero bits or is a group. In IPv4, it is not
 * if it is in 0.0.0.0/8, is 224.0.0.0 or higher, or is a broadcast address of a network that this host is in.
 */
static __always_inline bool is_no_host(struct address a, bool v6)
{
	if (v6)
		return !a.hi || a.hi >> 56 == 0xff;
	return is_unspecified(a, v6) || (__u32)a.lo >> 29 == 7 || is_broadcast(a);
}

/* Whether a destination is not the address of a single host behind this one: see is_no_host(), and link-local IPv6 addresses. */
static __always_inline bool is_nowhere(struct address a, bool v6)
{
	return is_no_host(a, v6) || (v6 && a.hi >> 54 == 0xfe80 >> 6);
}

/*
 * Whether this host, or for METHOD_ROUTER a host behind it, must answer a packet. The result is also true for frames to or from a
 * group, which other code does not answer. A global function: the verifier assumes that p may be null.
 */
__noinline __u32 is_to_answer(context *ctx, struct packet *p, __u32 method)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = data;
	bool v6;

	if (!p || (void *)(eth + 1) > end)
		return false;
	v6 = p->family;
	if (is_loopback(p->dst, v6) || (method == METHOD_ROUTER && is_nowhere(p->dst, v6)))
		return false;
	return is_with_group(eth) || is_shown(data) || has_word(mac_word(data) >> MAC_SHIFT);
}

/* Whether is_no_peer() must decide. */
static __always_inline bool may_be_no_peer(struct packet *p)
{
	return is_no_source(p) || is_unspecified(p->src, p->family) || !is_surely_foreign(p->src);
}

/*
 * Whether the source of a packet gets no answer, because no other host has that address. local_set has the own addresses.
 * A global function.
 */
__noinline __u32 is_no_peer(struct packet *p)
{
	if (!p)
		return true;
	if (is_no_source(p) || is_unspecified(p->src, p->family))
		return true;
	if (is_surely_foreign(p->src))
		return false;
	return dynamic_sets(p->src, p->family, local_set) || (!p->family && is_broadcast(p->src));
}

/*
 * Whether a datagram may be answered, for this host or for one behind it. return_ethernet() excludes frames to or from
 * a group. A global function.
 */
__noinline __u32 may_answer(context *ctx, struct packet *p)
{
	if (!p || is_no_host(p->dst, p->family))
		return false;
	return is_to_answer(ctx, p, METHOD_HOST) && !is_no_peer(p);
}
