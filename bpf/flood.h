/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Floods at UDP services. Clients whom the service has answered for a while are known (replyflow.h), and pass. The packets of
 * all others are counted by two limits: a flood begins above the first and goes on while the second is exceeded. Rules ask
 * for known clients, whether there is no flood, and whether a limit for all others together is exceeded
 * (internal/compile/floodrules.go).
 */
#pragma once

#include "clock.h"
#include "limit.h"
#include "packet.h"
#include "replyarriving.h"
#include "replyflow.h"

#define ACTIVE_TIME 10000000000ULL /* nanoseconds that a flood goes on for after the limit was exceeded, */
#define ACTIVE_RENEW 1000000000ULL /* which is noted again so long after it was */

/* Whether any rule asks about a flood. Constant. */
const volatile bool floods;

enum {
	MAX_FLOODS = 255,
	CLIENT_SHARE = 16, /* one in so many packets of known clients is charged to their limit */
};

/* The limits of a flood, by their numbers. */
struct flood {
	__u32 start;
	__u32 stop;
	__u32 each;     /* of known clients */
	__u32 protocol; /* enum datagrams */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flood);
} flood_limits SEC(".maps");

/* How a flood stands. Times are nanoseconds of CLOCK_MONOTONIC. The generated entry reads it. */
struct flood_state {
	__u64 until;      /* it goes on */
	__u64 spent;      /* until then the limit for all others together is exceeded */
	__u64 id_length;  /* in bytes, of the identifier that the service has told last (datagram.h), */
	__u64 id_mask[3]; /* and its bits in three words */
};

struct flood_state flood_states[MAX_FLOODS + 1] SEC(".data.floods");

static __always_inline struct flood_state *flood_state(__u32 number)
{
	return &flood_states[opaque(number) & MAX_FLOODS]; /* with bounds that the verifier knows */
}

/* Whether a flood is on that `until` notes, and the end of that time need not be extended yet. */
static __always_inline bool surely_active(__u64 *until, __u64 now)
{
	return read_once(until) > now + ACTIVE_TIME - ACTIVE_RENEW;
}

/*
 * Whether a flood is on; charges one more packet to the limits by which that is told. While it is on, packets are charged only
 * when the time may have to be extended.
 */
static __always_inline bool flood_goes_on(struct packet *p, __u64 *until, __u32 start, __u32 stop, __u64 now)
{
	__u64 end = read_once(until);

	if (surely_active(until, now))
		return true;
	if (!limit_exceeded(p, end > now ? stop : start))
		return end > now;
	if (traits_of(p) & TRAIT_KEEP)
		*until = now + ACTIVE_TIME;
	return true;
}

/* Whether there is no flood; charges the packet of a client that is not known. A global function. */
__noinline __u32 is_calm(struct packet *p, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);

	return !p || !f || !flood_goes_on(p, &flood_state(number)->until, f->start, f->stop, time_of(p));
}

/*
 * Whether a limit for all clients is exceeded that are not known. The packet is not charged. It is noted until when, so that
 * the generated entry need not ask again. A global function.
 */
__noinline __u32 is_spent(struct packet *p, __u32 number, __u32 limit)
{
	__u64 wait;

	if (!p)
		return 0;
	coarse_time(); /* which the generated entry reads, and leaves packets to general() until it is known */
	wait = limit_wait(p, limit);
	if (wait && traits_of(p) & TRAIT_KEEP)
		flood_state(number)->spent = time_of(p) + wait;
	return wait != 0;
}

/* What a rule asks: FloodQuestion of internal/model/ir/flood.go. */
enum flood_question {
	ASKS_NOTHING,
	ASKS_KNOWN,
	ASKS_CALM,
	ASKS_PROVED,
	ASKS_SPENT,
	ASKS_STRAY,
};

/* Has a known client be new again, and an identifier that was told be unknown. A global function. */
__noinline __u32 forget_client(__u64 pair, __u64 ends, __u64 index)
{
	__u64 hash = hash_reply_key(pair, ends), at, word;
	struct reply_bucket *b = reply_bucket(reply_index_within(index));
	__u32 now = reply_now();

	at = find_reply_flow(b, hash);
	word = live_reply_flow(b, at, hash, now);
	if (word && at < REPLY_SLOTS)
		__sync_val_compare_and_swap(
			&b->word[at], word,
			reply_state_of(word) == REPLY_CLIENT ? reply_word(hash, 1, REPLY_CLIENT_NEW, now) : 0);
	return 0;
}

/*
 * Whether a known client stays known: one that exceeds its limit during a flood does not. One packet in CLIENT_SHARE is
 * charged, since more instructions would be executed for the charge than for the rest.
 */
static __always_inline bool stays_known(struct packet *p, struct reply_key *t, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);

	if (!f || flood_state(number)->until <= time_of(p) || !limit_exceeded(p, f->each))
		return true;
	if (traits_of(p) & TRAIT_KEEP)
		forget_client(t->pair, reply_ends(t), reply_index(t));
	return false;
}

/*
 * Whether a packet is of a known client, and one more of it may pass as such: what the generated entry has found to be so, and
 * drawn for the charge, is asked with drawn. A global function.
 */
__noinline __u32 known_client(struct xdp_md *ctx, struct packet *p, __u32 number, __u32 drawn)
{
	__u32 flags, state;
	struct reply_key t;

	if (!p)
		return 0;
	flags = traits_of(p) & TRAIT_KEEP ? 0 : REPLY_LOOK;
	if (!read_reply_key(ctx, p, &t, &flags))
		return 0;
	state = is_reply(t.pair, reply_ends(&t), flags, reply_index(&t));
	if (state != REPLY_CLIENT)
		return 0;
	if (!drawn && bpf_get_prandom_u32() % CLIENT_SHARE)
		return 1;
	return stays_known(p, &t, number);
}

static __always_inline bool is_known_client(struct xdp_md *ctx, struct packet *p, __u32 number)
{
	return known_client(ctx, p, number, false);
}
