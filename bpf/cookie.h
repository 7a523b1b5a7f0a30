/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The cookies of host mode: what a SYN-ACK says of its SYN, so that nothing need be remembered (RFC 4987, 3.6). */
#pragma once

enum { WSCALE_NONE = 15 };

/* What is negotiated by the options of a SYN. */
struct syn_options {
	__u32 mss;
	__u32 wscale; /* WSCALE_NONE: it has none */
	__u32 sack;
	__u32 ecn;
	__u32 timestamps;
	__u32 tsval; /* as received, host byte order */
	__u32 tsecr;
};
