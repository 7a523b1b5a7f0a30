/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which packets this host, or a host behind it, would answer: those in frames to a device of this host, to and from
 * addresses that one host has. XDP sees all frames that the device takes. It has no pkt_type, and no route.
 */
#pragma once

#include "dynamic.h"
#include "packet.h"
#include "parse.h"
#include "protection.h"
#include "verifier.h"

enum {
	SHOWN_MACS = 4,
	END_MARKS = 1 << 12, /* a byte for each value of the last bits of an address, with: */
	MARK_OWN = 1,        /* an own address may end so, */
	MARK_BROADCAST = 2,  /* a broadcast address may */
	END_WORDS = 1 << 10, /* a power of two */
	MAC_SHIFT =
		15, /* of the first 64 bits of a frame: those behind the destination and the group bit of the source */
};

#define BROADCAST_WORD (1ULL << 49) /* beside an IPv4 address; words without are MAC addresses */

/* What user space says of this host. internal/compile/image/ends.go writes it, also while packets come. */
struct host_ends {
	__u64 shown[SHOWN_MACS]; /* some of the MAC addresses, shifted by MAC_SHIFT */
	__u8 marks[END_MARKS];
	__u64 word
		[END_WORDS]; /* all MAC addresses and broadcast addresses, in order; free ones have the largest 63-bit number */
};

struct host_ends host_ends SEC(".data.ends");

/*
 * The MAC address that a frame is for, as host_ends.shown has it, if the frame is not from a group: the group bit of the source is
 * behind it, and no address of host_ends has that bit. The frame has 8 bytes at least.
 */
static __always_inline __u64 mac_word(void *data)
{
	return *(__u64 *)data << MAC_SHIFT;
}

/* Whether a frame that is not from a group is for a MAC address of this host that is among the shown ones. None of these is a group's. */
static __always_inline bool is_shown(void *data)
{
	__u64 mac = mac_word(data);

#pragma unroll
	for (__u32 i = 0; i < SHOWN_MACS; i++)
		if (read_once(&host_ends.shown[i]) == mac)
			return true;
	return false;
}

/* Whether a frame is to a group, or from one. */
static __always_inline bool is_with_group(struct ethernet *eth)
{
	return (eth->destination[0] | eth->source[0]) & bpf_htons(0x0100);
}

/* Whether host_ends has a word, by halving. Without a branch, because each branch is one more path for the verifier. */
static __always_inline bool has_word(__u64 word)
{
	__u64 at = 0;

#pragma nounroll
	for (__u32 step = END_WORDS / 2; step; step /= 2)
		at = opaque(at + ((host_ends.word[(at + step) & (END_WORDS - 1)] - word - 1) >> 63) * step);
	return host_ends.word[at & (END_WORDS - 1)] == word;
}

/* Whether no own address and no broadcast address of this host ends as an address does. */
static __always_inline bool is_surely_foreign(struct address a)
{
	return !host_ends.marks[a.lo & (END_MARKS - 1)];
}

/* Whether a broadcast address of this host may end as an address does. */
static __always_inline bool may_be_broadcast(struct address a)
{
	return host_ends.marks[a.lo & (END_MARKS - 1)] & MARK_BROADCAST;
}

static __always_inline bool is_broadcast(struct address a)
{
	return may_be_broadcast(a) && has_word(BROADCAST_WORD | (__u32)a.lo);
}

/* Addresses that no packet on a wire can be answered at, besides those of is_no_source(): 0.0.0.0/8 and ::. */
static __always_inline bool is_unspecified(struct address a, bool v6)
{
	return v6 ? !a.hi && !a.lo : !((__u32)a.lo >> 24);
}

static __always_inline bool is_loopback(struct address a, bool v6)
{
	return v6 ? !a.hi && a.lo == 1 : (__u32)a.lo >> 24 == 127;
}

/*
 * Whether a destination is not that of one host: IPv6 addresses that begin with 64 zeros, and groups; 0.0.0.0/8, and all from 224.0.0.0
 * on; broadcast addresses of the networks that this host is in.
 */
static __always_inline bool is_no_host(struct address a, bool v6)
{
	if (v6)
		return !a.hi || a.hi >> 56 == 0xff;
	return is_unspecified(a, v6) || (__u32)a.lo >> 29 == 7 || is_broadcast(a);
}

/* Whether a destination is not that of one host behind this one: those, and link-local addresses of IPv6. */
static __always_inline bool is_nowhere(struct address a, bool v6)
{
	return is_no_host(a, v6) || (v6 && a.hi >> 54 == 0xfe80 >> 6);
}

/*
 * Whether this host, or for METHOD_ROUTER a host behind it, is the one to answer a packet. Frames to or from a group are no
 * question here: nothing answers them. A global function: the verifier assumes that p may be null.
 */
__noinline __u32 is_to_answer(struct xdp_md *ctx, struct packet *p, __u32 method)
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

/* Whether is_no_peer() has to decide. */
static __always_inline bool may_be_no_peer(struct packet *p)
{
	return is_no_source(p) || is_unspecified(p->src, p->family) || !is_surely_foreign(p->src);
}

/*
 * Whether no answer goes to the source of a packet, because nobody else has that address. local_set has the own addresses.
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
 * Whether the answer to a datagram may be sent, whichever host it is for: this host or one behind it. Frames to or from a group
 * are left to return_ethernet(). A global function.
 */
__noinline __u32 may_answer(struct xdp_md *ctx, struct packet *p)
{
	if (!p || is_no_host(p->dst, p->family))
		return false;
	return is_to_answer(ctx, p, METHOD_HOST) && !is_no_peer(p);
}
