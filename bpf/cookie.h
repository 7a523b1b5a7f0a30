/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The cookies of host mode: what a SYN-ACK says of its SYN, so that nothing need be remembered (RFC 4987, 3.6).
 *
 * The sequence number of the SYN-ACK is the parity of the time slot and a keyed hash of addresses, ports, the client's
 * sequence number, the slot and the options. These go into the timestamp when the SYN has one: its upper 20 bits are a
 * clock, the lower 12 say window scale, SACK, ECN, and the MSS to one of 64 values. Without a timestamp the lower 5 bits
 * of the sequence number have to do. What cannot be told exactly is told too small, which only costs speed, and what
 * cannot be told at all is not offered.
 *
 * A random ACK is taken for an answer by a chance of 2^-31 with timestamps, which must be of the last two slots at that,
 * and of 2^-26 without.
 */
#pragma once

#include "flow.h"
#include "packet.h"
#include "siphash.h"

enum { WSCALE_NONE = 15 };

/* What is negotiated by the options of a SYN. */
struct syn_options {
	__u32 mss;    /* 0: it has none */
	__u32 wscale; /* WSCALE_NONE: it has none */
	__u32 sack;
	__u32 ecn;
	__u32 timestamps;
	__u32 tsval; /* as received, host byte order */
	__u32 tsecr;
	__u32 authenticated; /* by TCP-AO (RFC 5925) or MD5 (RFC 2385) */
};

enum {
	SLOT_SHIFT = 36,  /* a slot is 2^36 ns, 69 s; a cookie is valid in its own and in the next */
	STAMP_SHIFT = 32, /* the clock of timestamps counts 2^32 ns, 4.3 s, */
	STAMP_BITS = 12,  /* above what they say of options */
	COOKIE_STAMPS = 2 << (SLOT_SHIFT - STAMP_SHIFT), /* that a cookie can be old */
	MAC_BITS = 31,

	STAMPED_WSCALE = 8, /* shifts of the fields of a timestamp: 4 bits, */
	STAMPED_SACK = 7,   /* one, */
	STAMPED_ECN = 6,    /* one, and 6 for the MSS */

	SMALL_BITS =
		5, /* of a sequence number that has to do without: 3 for window scale and SACK, and 2 for the MSS */
	SMALL_NONE = 0,
	SMALL_SACK,
	SMALL_WSCALE, /* SACK, and the first window scale of small_wscales; the next follow */

	MSS_LEAST4 = 536,  /* what every host takes: RFC 9293, 3.7.1 */
	MSS_LEAST6 = 1220, /* RFC 8200, 5, less headers */
};

/* By links and tunnels that there are: what Ethernet leaves under headers of tunnels is told to 4 bytes. */
static const __u16 stamped_mss[64] = {
	536,  576,  640,  768,  896,  1024, 1120, 1160, 1200, 1208, 1220, 1228, 1240, 1260, 1280, 1288,
	1300, 1308, 1320, 1328, 1336, 1340, 1348, 1352, 1356, 1360, 1364, 1368, 1372, 1376, 1380, 1384,
	1388, 1392, 1396, 1400, 1404, 1408, 1412, 1416, 1420, 1424, 1428, 1432, 1436, 1440, 1444, 1448,
	1452, 1456, 1460, 1660, 1960, 2460, 2960, 3460, 4036, 4056, 5960, 7960, 8860, 8900, 8940, 8960,
};

static const __u16 small_mss4[4] = { 536, 1300, 1440, 1460 };
static const __u16 small_mss6[4] = { 1220, 1300, 1440, 1460 };
static const __u8 small_wscales[6] = { 0, 2, 4, 6, 7, 8 };

/* 1 when a is at most b, without a branch: each would be another path to the verifier. */
static __always_inline __u32 at_most(__u32 a, __u32 b)
{
	return ((__u64)a - b - 1) >> 63;
}

/* The MSS of most SYNs, that of Ethernet in both families, and their places in stamped_mss. */
enum {
	USUAL_MSS4 = 1460,
	USUAL_MSS6 = 1440,
	USUAL_PLACE4 = 50,
	USUAL_PLACE6 = 45,
};

/* The last entry of stamped_mss that is at most mss, or else the first. */
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

/* What the kernel takes the MSS of a SYN for: bpf_sk_assign_tcp_reqsk() refuses less. */
static __always_inline __u32 usable_mss(struct packet *p, __u32 mss)
{
	__u32 least = p->family ? MSS_LEAST6 : MSS_LEAST4;

	return mss < least ? least : mss;
}

/* The timestamp for a SYN-ACK, which says what its SYN wants. */
static __always_inline __u32 stamp_options(struct packet *p, struct syn_options *o, __u64 now)
{
	__u32 said = o->wscale << STAMPED_WSCALE | o->sack << STAMPED_SACK | o->ecn << STAMPED_ECN |
		     stamped_index(usable_mss(p, o->mss));

	return (__u32)(now >> STAMP_SHIFT) << STAMP_BITS | said;
}

/* How old a timestamp is, in units of its clock. */
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

/* What the sequence number can say of a SYN. Strikes out of the options what it cannot. */
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

/* The two ends of a connection: what its packets are told from others by. */
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

/* Begins a hash of both addresses: in IPv4 with one word, the source in its upper half, in IPv6 with four. */
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

/* The hash of a cookie. said is the timestamp, or what the sequence number says. */
static __always_inline __u32 cookie_mac(const struct ends *e, __u32 isn, __u64 slot, __u32 said, bool timestamps)
{
	bool old = slot << SLOT_SHIFT < syn_keys.rotated;
	struct siphash h = hash_addresses(e, old ? syn_keys.previous : syn_keys.present);
	__u32 addresses = e->v6 ? 32 : 8; /* bytes */

	siphash13_add(&h, (__u64)isn << 32 | e->ports);
	return siphash13_end(&h, (slot & 0xffffff) << 32 | said, addresses + 15 + timestamps);
}

/* The sequence number with a hash: 1 bit of the slot, then the hash, and without timestamps what it says. */
static __always_inline __u32 cookie_number(__u32 mac, __u64 slot, __u32 said, bool timestamps)
{
	__u32 number = (__u32)slot << MAC_BITS | mac >> (32 - MAC_BITS);

	return timestamps ? number : (number & ~((1 << SMALL_BITS) - 1)) | said;
}

/*
 * Notes of the time slot in which a cookie was last sent, a byte for flows with the same 17 bits of their hash: the lower seven bits of
 * the slot's number and SENT_EVER, or 0 when none ever was. A segment without a note brings back no cookie, so its hash need not be
 * worked out. The kernel spares itself the same while it has sent no cookie (tcp_synq_no_recent_overflow() of include/net/tcp.h). Ten
 * clients a second leave 1 of 100 forged segments with a note, a hundred leave 1 of 10. Under a flood of SYNs all have one, and the hash
 * decides. Each note is written once in a slot, however many SYNs come: CPUs share 131,072 writes in 69 seconds at most. The table is
 * small, because a flood of random segments is to find it in the cache.
 */
__u8 cookies_sent[8] SEC(".data.cookies"); /* see table() */

enum {
	SENT_NOTES = 1 << 17, /* internal/codegen/xdp/protect.go */
	SENT_EVER = 0x80,
	SENT_SLOTS =
		3, /* that a note is good for: the cookie's own, the next, and one as another CPU may be some ticks behind */
};

/* The note of a flow. */
static __always_inline __u8 *cookie_sent(__u64 hash)
{
	return &table(cookies_sent)[hash & (SENT_NOTES - 1)];
}

/* Notes that a cookie is sent for a flow. */
static __always_inline void note_cookie(__u64 hash, __u64 slot)
{
	__u8 *sent = cookie_sent(hash), note = slot | SENT_EVER;

	if (*sent != note)
		*sent = note;
}

/* Whether a cookie of a flow may be on its way. */
static __always_inline bool cookie_may_come(__u64 hash, __u64 slot)
{
	__u8 sent = *cookie_sent(hash);

	return sent && ((slot - sent) & (SENT_EVER - 1)) < SENT_SLOTS;
}

/*
 * The sequence number of the SYN-ACK to a SYN with sequence number isn. Strikes out of o what cannot be offered, and sets
 * o->tsval to what is to be sent, when the SYN has timestamps.
 */
static __always_inline __u32 cookie_of(struct packet *p, __u32 isn, struct syn_options *o)
{
	__u64 now = tick_of(p), slot = now >> SLOT_SHIFT;
	struct ends e = ends_of(p);
	__u32 said;

	if (o->timestamps)
		said = o->tsval = stamp_options(p, o, now);
	else
		said = small_options(p, o);
	note_cookie(p->flow_hash, slot);
	return cookie_number(cookie_mac(&e, isn, slot, said, o->timestamps), slot, said, o->timestamps);
}

/* The same as a global function, like flow_state(). */
__noinline __u32 cookie_make(struct packet *p, __u32 isn, struct syn_options *o)
{
	return p && o ? cookie_of(p, isn, o) : 0;
}

/* What a packet's cookie would say. */
static __always_inline __u32 cookie_says(__u32 number, struct syn_options *o)
{
	return o->timestamps ? o->tsecr : number & ((1 << SMALL_BITS) - 1);
}

/* Whether a packet with these numbers answers a SYN-ACK that cookie_make() made the sequence number of. */
static __always_inline bool cookie_valid_for(const struct ends *e, __u32 seq, __u32 ack, struct syn_options *o,
					     __u64 now)
{
	__u32 number = ack - 1, said = cookie_says(number, o);
	__u64 slot = now >> SLOT_SHIFT;

	slot -= (slot ^ number >> MAC_BITS) & 1;
	/* Most that is forged is not worth a hash: its clock is not ours. */
	if (o->timestamps && stamp_age(said, now) > COOKIE_STAMPS)
		return false;
	return cookie_number(cookie_mac(e, seq - 1, slot, said, o->timestamps), slot, said, o->timestamps) == number;
}

/*
 * The same, of which o has the timestamps; it is completed by what the SYN wanted. A global function, like
 * flow_state().
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
