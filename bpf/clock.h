/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The time of a packet: read once for each packet, or set by a question (explain.h). */
#pragma once

#include "packet.h"
#include "verifier.h"

/*
 * The time at which the coarse clock was last read, except that the lower TICK_BITS hold the number of the tick of that
 * read. 0 before the first use. All CPUs share it.
 */
__u64 tick SEC(".data.tick");

enum {
	TICK_BITS = 20, /* of nanoseconds: 1 ms; of ticks: 17 minutes at least */
};

/*
 * Nanoseconds of CLOCK_MONOTONIC by the coarse clock. It calls the kernel once a tick only: with hardened returns the
 * call costs 15 ns, while bpf_jiffies64() is no call (kernel/bpf/verifier.c, do_misc_fixups). The kernel increments the
 * tick before it sets the clock (kernel/time/tick-sched.c, tick_do_update_jiffies64), so the result may be two ticks
 * and 2 ms late. Time and tick share one word, so no CPU reads the time of one tick with the number of another.
 *
 * The time may go back by a tick: two CPUs may read the clock at the turn of a tick, and the later write may be the
 * older reading. Before the first use the kernel is called at any tick, because 0 is a tick's number too. The tick's
 * number repeats after 2^TICK_BITS ticks. If no CPU reads the clock for a multiple of that time exactly, the old time
 * is returned until this tick ends: bans and flows last that much longer, and cookies made in it are refused.
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

/* The exact time for limits, read once for each packet. */
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
