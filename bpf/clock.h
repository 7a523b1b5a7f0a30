/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The time of a packet: read once a packet, or given by a question (explain.h). */
#pragma once

#include "packet.h"

/* The time that limits count by, read once a packet. */
static __always_inline __u64 time_of(struct packet *p)
{
	if (!p->now)
		p->now = bpf_ktime_get_ns();
	return p->now;
}

/* A time that is not ahead of that, by a clock that costs a tenth (dynamic.h). */
static __always_inline __u64 coarse_time_of(struct packet *p)
{
	return p->now ? p->now : bpf_ktime_get_coarse_ns();
}
