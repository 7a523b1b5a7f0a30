/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The time of a packet: read once a packet, or given by a question (explain.h). */
#pragma once

#include "packet.h"
#include "verifier.h"

/*
 * The coarse clock as it was read last, but for its lower TICK_BITS, which are those of the tick in which it was; 0 before the first use.
 * All CPUs share it.
 */
__u64 tick SEC(".data.tick");

enum { TICK_BITS = 20 }; /* of nanoseconds: 1 ms; of ticks: 17 minutes at least */

/*
 * Nanoseconds of CLOCK_MONOTONIC by the coarse clock. The kernel is asked once a tick only: where its returns are hardened, that costs
 * 15 ns, while bpf_jiffies64() is no call (kernel/bpf/verifier.c, do_misc_fixups). The kernel counts the tick before it sets the clock
 * (kernel/time/tick-sched.c, tick_do_update_jiffies64): so this may be two ticks and 2 ms behind. It is one word, so nobody finds the time of
 * one tick with the number of another.
 *
 * The time may go back by a tick: two CPUs may ask at the turn of a tick, and the later write may be the older one. Before the first use
 * the kernel is asked whatever the tick, as 0 is the number of one, too. When nobody has asked for k * 2^TICK_BITS ticks exactly, that
 * tick has the number of the last one in which somebody did, and the time of that holds until it is over: bans and flows hold that much
 * longer, and the cookies that are made in it are refused.
 */
static __always_inline __u64 coarse_time(void)
{
	__u64 jiffies = bpf_jiffies64(), known = read_once(&tick);

	if (!known || (known ^ jiffies) << (64 - TICK_BITS)) {
		known = ((bpf_ktime_get_coarse_ns() >> TICK_BITS) - 1) << TICK_BITS;
		known |= jiffies & ((1 << TICK_BITS) - 1);
		*(volatile __u64 *)&tick = known;
	}
	return known;
}

/* The time that limits count by, read once a packet. */
static __always_inline __u64 charge_time(struct charged *w)
{
	if (!w->now)
		w->now = bpf_ktime_get_ns();
	return w->now;
}

static __always_inline __u64 time_of(struct packet *p)
{
	return charge_time(&p->charged);
}
