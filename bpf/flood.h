/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Detects floods at UDP services. The packets of unknown clients (client.h) are charged to two limits: a flood
 * begins when the first is exceeded, and goes on while the second is exceeded. Rules ask whether there is no flood,
 * and whether the limit for all packets of unknown clients together is exceeded (internal/compile/floodrules.go).
 */
#pragma once

#include "clock.h"
#include "limit.h"
#include "packet.h"

#define ACTIVE_TIME 10000000000ULL /* nanoseconds that a flood goes on for after the limit was exceeded, */
#define ACTIVE_RENEW 1000000000ULL /* which is noted again so long after it was */

/* Whether any rule asks about a flood. Constant. */
const volatile bool floods;

enum {
	MAX_FLOODS = 255,
	CLIENT_SHARE = 16, /* one in so many packets of known clients is charged to their limit */
};

/* The numbers of the limits of a flood. */
struct flood {
	__u32 start;
	__u32 stop;
	__u32 each;     /* of known clients */
	__u32 protocol; /* enum datagrams */
	__u32 proved;   /* of all packets together that have an identifier */
	__u32 answered; /* of all packets together of clients that are answered, and not known */
	__u32 again;    /* the first limit of packets that come again (newcomer.h), */
	__u32 layers; /* and how many such limits there are, of which the last is the one for all clients that are not known */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flood);
} flood_limits SEC(".maps");

/* The state of a flood. Times are nanoseconds of CLOCK_MONOTONIC. The generated entry reads it. */
struct flood_state {
	__u64 until;      /* it goes on */
	__u64 spent;      /* until then the limit for all others together is exceeded, */
	__u64 unproved;   /* and that for all packets with an identifier */
	__u64 id_length;  /* in bytes, of the identifier that the service has issued last (datagram.h), */
	__u64 id_mask[3]; /* and its bits in three words */
};

struct flood_state flood_states[MAX_FLOODS + 1] SEC(".data.floods");

static __always_inline struct flood_state *flood_state(__u32 number)
{
	return &flood_states[opaque(number) & MAX_FLOODS]; /* with bounds that the verifier knows */
}

/* Whether a flood goes on until the time *until, and that time is so late that it need not be extended yet. */
static __always_inline bool surely_active(__u64 *until, __u64 now)
{
	return read_once(until) > now + ACTIVE_TIME - ACTIVE_RENEW;
}

/*
 * Whether a flood goes on; *until is its end. Charges the packet to the limit that decides this: start before
 * a flood, stop during one. During a flood, a packet is charged only if the end may have to be extended.
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

/* Whether there is no flood. Charges the packet, which is of an unknown client. A global function. */
__noinline __u32 is_calm(struct packet *p, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);

	coarse_time(); /* which the generated entry reads, and leaves packets to general() until it is known */
	return !p || !f || !flood_goes_on(p, &flood_state(number)->until, f->start, f->stop, time_of(p));
}

/*
 * Whether less than half of the burst of a limit is left. The limit is that for all unknown clients together. The other half is for packets that come
 * again (newcomer.h). The packet is not charged. The time at which this ends is noted, so that the generated entry need not ask again. A global function.
 */
__noinline __u32 is_spent(struct packet *p, __u32 number, __u32 limit)
{
	__u64 wait;

	if (!p)
		return 0;
	coarse_time(); /* likewise */
	wait = limit_wait(&p->charged, limit, traits_of(p) | TRAIT_HALF);
	if (wait && traits_of(p) & TRAIT_KEEP)
		flood_state(number)->spent = time_of(p) + wait;
	return wait != 0;
}

/* The questions of rules: FloodQuestion of internal/model/ir/flood.go. */
enum flood_question {
	ASKS_NOTHING,
	ASKS_KNOWN,
	ASKS_CALM,
	ASKS_PROVED,
	ASKS_SPENT,
	ASKS_STRAY,
	ASKS_SERVED,
	ASKS_QUERY,
	ASKS_OPENING,
	ASKS_ANSWERED,
	ASKS_AGAIN,
};
