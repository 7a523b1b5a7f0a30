/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The time of a packet: read once a packet, or given by a question (explain.h). */
#pragma once

#include "packet.h"

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
