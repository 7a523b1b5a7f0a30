/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Limits how often the program does something expensive. Packets are limited by limit.h. */
#pragma once

#include "kernel.h"

/* Whether one more event would exceed a rate. The arguments are those of within_rate(). */
static __always_inline bool exceeds_rate(__u64 *next, __u64 now, __u64 interval, __u64 burst)
{
	return *next > now + burst * interval;
}

/*
 * Whether one more event is within a rate; if so, it is charged. interval is the time between two events, burst how many more
 * may come at once, next the time of the next one: a generic cell rate algorithm (ITU-T I.371). Times are in nanoseconds.
 */
static __always_inline bool within_rate(__u64 *next, __u64 now, __u64 interval, __u64 burst)
{
	if (exceeds_rate(next, now, interval, burst))
		return false;
	*next = (*next > now ? *next : now) + interval;
	return true;
}
