/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is done with a packet that has its decision. */
#pragma once

static __always_inline int act(struct xdp_md *ctx, struct packet *p, __u32 decision)
{
	return (decision & VERDICT_MASK) == VERDICT_PASS ? XDP_PASS : XDP_DROP;
}
