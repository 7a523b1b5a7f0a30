/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Protection of services from floods of SYNs and ACKs: what a rule with a protection passes goes through protect(). SYNs
 * are answered with a cookie while there are too many of them; of the rest passes what belongs to a connection.
 */
#pragma once

/* Whether any rule has a protection. Constant from load on. */
const volatile bool protects;

static __always_inline int protect(struct xdp_md *ctx, struct packet *p, __u32 decision)
{
	return XDP_PASS;
}
