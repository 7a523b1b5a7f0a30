/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What rules ask of the payload. */
#pragma once

static __noinline __u32 payload_matches(struct xdp_md *ctx, struct packet *p, __u64 patterns, __u32 at, __u32 places)
{
	return p && p->payload + at + places > p->end && ctx->data && patterns;
}
