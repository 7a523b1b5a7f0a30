/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Limits. */
#pragma once

static __noinline __u32 limit_exceeded(struct packet *p, __u32 number)
{
	return !p || number > time_of(p);
}
