/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * New clients of UDP services that send again during a flood. A flood of forged packets has new sources all the time. A client whose first
 * packet was refused sends it again after a while. So the addresses and ports of a refused packet are noted. A packet with the same ones that
 * arrives in time passes within the limits, ahead of all first packets. This is greylisting (RFC 6647) for datagrams.
 *
 * The upper bits of a packet's hash choose a 16-bit word of the table. The word has more bits of the hash, and a time. A newer packet
 * overwrites the word. At 40,000 forged packets a second, the word of a client that sends again after 1 s is still there in 96 of 100 cases,
 * and one in 2,000 forged packets matches the word of another. A flood that repeats its forged sources passes, too, but within the same limits.
 */
#pragma once

#include "clock.h"
#include "flood.h"
#include "limit.h"
#include "packet.h"
#include "replyflow.h"

enum {
	NEWCOMER_BITS = 20,     /* 2 MiB */
	NEWCOMER_TAG_BITS = 9,  /* of the hash, below those that choose the word */
	NEWCOMER_TIME_BITS = 6, /* in units; it repeats after 8.6 s */
	NEWCOMER_NOTED = 1 << (NEWCOMER_TAG_BITS + NEWCOMER_TIME_BITS), /* or the word is empty */
	NEWCOMER_UNIT = 27,     /* of 2^27 ns: 134 ms. A client that sends two packets at once does not come again. */
	NEWCOMER_MOST_AGE = 60, /* units: 8 s. WireGuard sends again after 5 s. */
};

/*
 * For each flood, the time in ns of CLOCK_MONOTONIC until which packets that come again exceed the limit for all packets. Behind these times is
 * the table. The loader gives it 2^NEWCOMER_BITS words.
 */
struct newcomers {
	__u64 spent[MAX_FLOODS + 1];
	__u16 seen[2];
};

struct newcomers newcomers[1] SEC(".data.again");

/*
 * Whether a packet comes again in time, and the limit for all such packets is not exceeded. If it does not come again, it is
 * noted. hash is that of its addresses and ports. number is that of a flood, with REPLY_LOOK if nothing must be noted. time
 * is in ns of CLOCK_MONOTONIC. The generated entry does the same (internal/compile/xdp/entry/flood.go). A global function.
 */
__noinline __u32 came_again(__u64 hash, __u32 number, __u64 time)
{
	__u16 *seen = &table(newcomers)->seen[hash >> (64 - NEWCOMER_BITS)], word = *(volatile __u16 *)seen;
	__u32 tags = (BIT(NEWCOMER_TAG_BITS) - 1) << NEWCOMER_TIME_BITS, times = BIT(NEWCOMER_TIME_BITS) - 1;
	__u32 now = time >> NEWCOMER_UNIT, age = (now - word) & times;
	__u32 noted = (hash >> (64 - NEWCOMER_BITS - NEWCOMER_TAG_BITS - NEWCOMER_TIME_BITS) & tags) | NEWCOMER_NOTED |
		      (now & times);

	if ((word ^ noted) > times || age > NEWCOMER_MOST_AGE) {
		if (!(number & REPLY_LOOK))
			*(volatile __u16 *)seen = noted;
		return 0;
	}
	return age && read_once(&table(newcomers)->spent[number & MAX_FLOODS]) <= time;
}

/*
 * Whether a packet comes again and is within all limits of its service. It is charged to them. The last limit is the one for all packets.
 * If it is exceeded, the time at which this ends is noted, so that a flood that repeats a few sources costs little. A global function.
 */
__noinline __u32 comes_again(struct packet *p, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);
	struct reply_key t;
	__u64 time, wait;
	__u32 look;

	if (!p || !f || !f->layers)
		return 0;
	datagram_key(&t, p);
	look = traits_of(p) & TRAIT_KEEP ? 0 : REPLY_LOOK;
	/* The entry's clock, because the entry may have noted this packet: by a later clock, it would come again. A question has its own time. */
	time = p->seen & SEEN_QUESTION ? time_of(p) : coarse_time();
	if (!came_again(reply_sum(&t), number | look, time))
		return 0;
	wait = limit_wait(&p->charged, f->again + f->layers - 1, traits_of(p));
	if (wait) {
		if (!look)
			table(newcomers)->spent[opaque(number) & MAX_FLOODS] = time_of(p) + wait;
		return 0;
	}
	for (__u32 i = 0; i < MAX_LAYERS; i++) {
		if (i >= f->layers)
			break;
		if (limit_exceeded(p, f->again + i))
			return 0;
	}
	return 1;
}
