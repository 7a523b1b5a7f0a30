/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The cookies of mode host. The SYN-ACK carries the state of its SYN, so nothing is stored (RFC 4987, 3.6).
 *
 * The sequence number of the SYN-ACK is the parity of the time slot and a keyed hash of addresses, ports, the client's
 * sequence number, the slot and the options. If the SYN has a timestamp, the options go into the timestamp of the
 * SYN-ACK: its upper 20 bits are a clock, the lower 12 encode window scale, SACK, ECN, and the MSS as one of 64 values.
 * Without a timestamp the lower 5 bits of the sequence number encode them. A value that cannot be encoded exactly is
 * rounded down, which only costs speed; an option that cannot be encoded at all is not offered.
 *
 * A random ACK passes as an answer with a probability of 2^-31 with timestamps, if its timestamp is of the last two
 * slots, and of 2^-26 without.
 */
#pragma once

#include "flow.h"
#include "packet.h"
#include "siphash.h"

enum { WSCALE_NONE = 15 };

/* The parameters that the options of a SYN negotiate. */
struct syn_options {
	__u32 mss;    /* 0: no such option */
	__u32 wscale; /* WSCALE_NONE: no such option */
	__u32 sack;
	__u32 ecn;
	__u32 timestamps;
	__u32 tsval; /* as received, host byte order */
	__u32 tsecr;
	__u32 authenticated; /* by TCP-AO (RFC 5925) or MD5 (RFC 2385) */
};

enum {
	SLOT_SHIFT = 36,  /* a slot is 2^36 ns, 69 s; a cookie is valid in its own and in the next */
	STAMP_SHIFT = 32, /* the clock of timestamps has units of 2^32 ns, 4.3 s */
	STAMP_BITS = 12,  /* the lower bits of a timestamp, which encode the options */
	COOKIE_STAMPS = 2 << (SLOT_SHIFT - STAMP_SHIFT), /* the highest age of a cookie, in these units */
	MAC_BITS = 31,

	STAMPED_WSCALE = 8, /* shifts of the fields of a timestamp. 4 bits */
	STAMPED_SACK = 7,   /* 1 bit */
	STAMPED_ECN = 6,    /* 1 bit; below are 6 bits for the MSS */

	SMALL_BITS =
		5, /* of a sequence number, when there are no timestamps: 3 for window scale and SACK, 2 for the MSS */
	SMALL_NONE = 0,
	SMALL_SACK,
	SMALL_WSCALE, /* SACK, and small_wscales[0]; larger values stand for the next ones */

	MSS_LEAST4 = 536,  /* the MSS that every host accepts: RFC 9293, 3.7.1 */
	MSS_LEAST6 = 1220, /* the least MTU, minus headers: RFC 8200, 5 */
};

/* The MSS of links and tunnels in use: from 1352 to 1460, the range of tunnels over Ethernet, in steps of 4 bytes. */
static const __u16 stamped_mss[64] = {
	536,  576,  640,  768,  896,  1024, 1120, 1160, 1200, 1208, 1220, 1228, 1240, 1260, 1280, 1288,
	1300, 1308, 1320, 1328, 1336, 1340, 1348, 1352, 1356, 1360, 1364, 1368, 1372, 1376, 1380, 1384,
	1388, 1392, 1396, 1400, 1404, 1408, 1412, 1416, 1420, 1424, 1428, 1432, 1436, 1440, 1444, 1448,
	1452, 1456, 1460, 1660, 1960, 2460, 2960, 3460, 4036, 4056, 5960, 7960, 8860, 8900, 8940, 8960,
};

static const __u16 small_mss4[4] = { 536, 1300, 1440, 1460 };
static const __u16 small_mss6[4] = { 1220, 1300, 1440, 1460 };
static const __u8 small_wscales[6] = { 0, 2, 4, 6, 7, 8 };

/* 1 if a <= b, else 0. Without a branch, because each branch is one more path for the verifier. */
static __always_inline __u32 at_most(__u32 a, __u32 b)
{
	return ((__u64)a - b - 1) >> 63;
}

/* The MSS of most SYNs, which is that of Ethernet, for both families, and its index in stamped_mss. */
enum {
	USUAL_MSS4 = 1460,
	USUAL_MSS6 = 1440,
	USUAL_PLACE4 = 50,
	USUAL_PLACE6 = 45,
};

/* The index of the last entry of stamped_mss that is at most mss, or 0. */
static __always_inline __u32 stamped_index(__u32 mss)
{
	__u32 at = 0;

	if (mss == USUAL_MSS4)
		return USUAL_PLACE4;
	if (mss == USUAL_MSS6)
		return USUAL_PLACE6;
#pragma unroll
	for (__u32 step = 32; step; step /= 2)
		at += at_most(stamped_mss[(at + step) & 63], mss) * step;
	return at;
}

static __always_inline __u32 small_index(const __u16 table[4], __u32 mss)
{
	return at_most(table[1], mss) + at_most(table[2], mss) + at_most(table[3], mss);
}

/* An MSS, raised to the least that the kernel accepts: bpf_sk_assign_tcp_reqsk() refuses smaller ones. */
static __always_inline __u32 usable_mss(struct packet *p, __u32 mss)
{
	__u32 least = p->family ? MSS_LEAST6 : MSS_LEAST4;

	return mss < least ? least : mss;
}

/* The timestamp for a SYN-ACK, which encodes the options of its SYN. */
static __always_inline __u32 stamp_options(struct packet *p, struct syn_options *o, __u64 now)
{
	__u32 said = o->wscale << STAMPED_WSCALE | o->sack << STAMPED_SACK | o->ecn << STAMPED_ECN |
		     stamped_index(usable_mss(p, o->mss));

	return (__u32)(now >> STAMP_SHIFT) << STAMP_BITS | said;
}

/* The age of a timestamp, in units of its clock (2^STAMP_SHIFT ns). */
static __always_inline __u32 stamp_age(__u32 stamp, __u64 now)
{
	return ((__u32)(now >> STAMP_SHIFT) - (stamp >> STAMP_BITS)) & ((1 << (32 - STAMP_BITS)) - 1);
}

static __always_inline void read_stamp(struct packet *p, struct syn_options *o, __u32 stamp)
{
	o->wscale = stamp >> STAMPED_WSCALE & 15;
	o->sack = stamp >> STAMPED_SACK & 1;
	o->ecn = stamp >> STAMPED_ECN & 1;
	o->mss = usable_mss(p, stamped_mss[stamp & 63]);
}

/* The options that the sequence number encodes. Removes from o the options that it cannot encode. */
static __always_inline __u32 small_options(struct packet *p, struct syn_options *o)
{
	__u32 mss = small_index(p->family ? small_mss6 : small_mss4, o->mss), options = SMALL_NONE;

	o->ecn = 0;
	if (!o->sack)
		o->wscale = WSCALE_NONE;
	else if (o->wscale == WSCALE_NONE)
		options = SMALL_SACK;
	else
		options = SMALL_WSCALE + at_most(2, o->wscale) + at_most(4, o->wscale) + at_most(6, o->wscale) +
			  at_most(7, o->wscale) + at_most(8, o->wscale);
	return options << 2 | mss;
}

static __always_inline void read_small(struct packet *p, struct syn_options *o, __u32 said)
{
	__u32 options = said >> 2 & 7;

	o->mss = p->family ? small_mss6[said & 3] : small_mss4[said & 3];
	o->ecn = 0;
	o->sack = options != SMALL_NONE;
	o->wscale = options < SMALL_WSCALE ? WSCALE_NONE : small_wscales[options - SMALL_WSCALE];
}

/* The addresses and ports of a connection. */
struct ends {
	struct address src;
	struct address dst;
	__u32 ports; /* that of the client in the upper half */
	__u32 v6;
};

static __always_inline struct ends ends_of(struct packet *p)
{
	struct ends e = { p->src, p->dst, both_ports(p), p->family };
	return e;
}

/* Starts a hash with both addresses: one word for IPv4, with the source in its upper half, four words for IPv6. */
static __always_inline struct siphash hash_addresses(const struct ends *e, const __u64 key[2])
{
	struct siphash h = siphash_begin(key);

	if (!e->v6) {
		siphash13_add(&h, e->src.lo << 32 | (__u32)e->dst.lo);
		return h;
	}
	siphash13_add(&h, e->src.hi);
	siphash13_add(&h, e->src.lo);
	siphash13_add(&h, e->dst.hi);
	siphash13_add(&h, e->dst.lo);
	return h;
}

/* The hash of a cookie. said is the timestamp, or the options that the sequence number encodes. */
static __always_inline __u32 cookie_mac(const struct ends *e, __u32 isn, __u64 slot, __u32 said, bool timestamps)
{
	bool old = slot << SLOT_SHIFT < syn_keys.rotated;
	/* Hidden. Otherwise LLVM makes this choice again for each half of the key. */
	const __u64 *key = hidden(old ? &syn_keys.previous[0] : &syn_keys.present[0]);
	struct siphash h = hash_addresses(e, key);
	__u32 addresses = e->v6 ? 32 : 8; /* bytes */

	siphash13_add(&h, (__u64)isn << 32 | e->ports);
	return siphash13_end(&h, (slot & 0xffffff) << 32 | said, addresses + 15 + timestamps);
}

/* The sequence number of a SYN-ACK: 1 bit of the slot, then the hash, and without timestamps the options. */
static __always_inline __u32 cookie_number(__u32 mac, __u64 slot, __u32 said, bool timestamps)
{
	__u32 number = (__u32)slot << MAC_BITS | mac >> (32 - MAC_BITS);

	return timestamps ? number : (number & ~((1 << SMALL_BITS) - 1)) | said;
}

/*
 * The time slot in which a cookie was last sent, a byte for all flows with the same lower 17 bits of their hash: the lower seven
 * bits of the slot's number and SENT_EVER, or 0 if none was sent. If no cookie was sent lately, a segment brings back none, and
 * its cookie need not be computed. The kernel does the same while it has sent no cookie (tcp_synq_no_recent_overflow() of
 * include/net/tcp.h). With ten new clients a second, 1 of 100 forged segments finds a byte that is set. With a hundred, it is 1 of 10.
 * Under a flood of SYNs all bytes are set, and the cookie decides. Each byte is written once in a slot, however many SYNs come:
 * at most 131,072 shared writes in 69 seconds. The table is small, so a flood of random segments finds it in the cache.
 */
__u8 cookies_sent[8] SEC(".data.cookies"); /* see table() */

enum {
	SENT_NOTES = 1 << 17,
	SENT_EVER = 0x80,
	/* A note is valid for so many slots: the cookie's own, the next, and one more because another CPU may be some ticks behind. */
	SENT_SLOTS = 3,
};

/* The byte of a flow in cookies_sent. */
static __always_inline __u8 *cookie_sent(__u64 hash)
{
	return &table(cookies_sent)[hash & (SENT_NOTES - 1)];
}

/* Records that a cookie is sent for a flow. */
static __always_inline void note_cookie(__u64 hash, __u64 slot)
{
	__u8 *sent = cookie_sent(hash);
	__u32 note = (slot & (SENT_EVER - 1)) | SENT_EVER;

	if (*sent != note)
		*sent = note;
}

/* Whether a cookie was sent for a flow so lately that an ACK may bring it back. */
static __always_inline bool cookie_may_come(__u64 hash, __u64 slot)
{
	__u8 sent = *cookie_sent(hash);

	return sent && ((slot - sent) & (SENT_EVER - 1)) < SENT_SLOTS;
}

/*
 * The sequence number of the SYN-ACK to a SYN with sequence number isn. Removes from o the options that cannot be
 * offered. now is the time of the packet. If the SYN has timestamps, sets o->tsval to the timestamp of the SYN-ACK.
 */
static __always_inline __u32 cookie_of(struct packet *p, __u32 isn, struct syn_options *o, __u64 now)
{
	__u64 slot = now >> SLOT_SHIFT;
	struct ends e = ends_of(p);
	__u32 said;

	if (o->timestamps)
		said = o->tsval = stamp_options(p, o, now);
	else
		said = small_options(p, o);
	note_cookie(p->flow_hash, slot);
	return cookie_number(cookie_mac(&e, isn, slot, said, o->timestamps), slot, said, o->timestamps);
}

/* cookie_of() as a global function, like flow_state(). */
__noinline __u32 cookie_make(struct packet *p, __u32 isn, struct syn_options *o)
{
	return p && o ? cookie_of(p, isn, o, tick_of(p)) : 0;
}

/* The encoded options of a cookie: the timestamp, or the lower bits of the sequence number. */
static __always_inline __u32 cookie_says(__u32 number, struct syn_options *o)
{
	return o->timestamps ? o->tsecr : number & ((1 << SMALL_BITS) - 1);
}

/* Whether an ACK with these numbers acknowledges a SYN-ACK of cookie_make(). */
static __always_inline bool cookie_valid_for(const struct ends *e, __u32 seq, __u32 ack, struct syn_options *o,
					     __u64 now)
{
	__u32 number = ack - 1, said = cookie_says(number, o);
	__u64 slot = now >> SLOT_SHIFT;

	slot -= (slot ^ number >> MAC_BITS) & 1;
	/* Most forged segments end here, before the hash: their timestamp is not of our clock. */
	if (o->timestamps && stamp_age(said, now) > COOKIE_STAMPS)
		return false;
	return cookie_number(cookie_mac(e, seq - 1, slot, said, o->timestamps), slot, said, o->timestamps) == number;
}

/*
 * Checks like cookie_valid_for(). o has the timestamps of the packet, and receives the options that the cookie encodes. A global
 * function, like flow_state().
 */
__noinline __u32 cookie_check(struct packet *p, __u32 seq, __u32 ack, struct syn_options *o)
{
	struct ends e;

	if (!p || !o)
		return 0;
	e = ends_of(p);
	if (!cookie_valid_for(&e, seq, ack, o, tick_of(p)))
		return 0;
	if (o->timestamps)
		read_stamp(p, o, cookie_says(ack - 1, o));
	else
		read_small(p, o, cookie_says(ack - 1, o));
	return 1;
}
