/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Queries of the domain name system. */
#pragma once

static __always_inline void parse_dns(struct xdp_md *ctx, struct frame *f)
{
	f->packet.dns = DNS_NONE;
	f->packet.verified = 0;
	f->packet.dns_names = 0;
}
