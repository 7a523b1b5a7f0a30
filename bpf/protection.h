/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Configuration and state of the protection of services against floods of SYNs and ACKs. */
#pragma once

#include "kernel.h"

/* Whether any rule has a protection, and whether any protection has METHOD_HOST. Constants from load on. */
const volatile bool protects;
const volatile bool protect_host;

enum method {
	METHOD_HOST = 1, /* cookies of this program; ingress.h gives the kernel the connection */
	METHOD_LISTENER, /* cookies of the kernel's listening socket */
	METHOD_ROUTER,   /* cookies of netfilter's SYNPROXY, behind this program */
};

enum {
	PROTECT_ALWAYS = 1,        /* flags: every SYN is answered with a cookie */
	PROTECT_AUTHENTICATED = 2, /* the kernel answers SYNs with TCP-AO or MD5, up to a limit */

	OFFER_WSCALE = 1, /* options that the service supports */
	OFFER_SACK = 2,
	OFFER_TIMESTAMPS = 4,
	OFFER_ECN = 8,

	PROTECT_LIMITS = 5,
};

/* The outcomes for a packet, each with a counter. internal/model/ir/protect.go. */
enum syn_outcome {
	SYN_ANSWERED,
	SYN_LIMITED,
	ACK_PROVED,
	ACK_INVALID,
	ACK_ASKED,
	SYN_AUTHENTICATED,
	NUM_OUTCOMES,
};

/* The configuration of a protection. internal/compile/xdp/protect.go fills the map. */
struct protection {
	__u32 method;
	__u32 flags;
	__u32 offers;
	__u16 mss[2]; /* the announced MSS, by family */
	__u16 window; /* the announced window */
	__u8 wscale;  /* the announced window scale */
	__u8 num_limits;
	__u32 start;                  /* the limit above which cookies begin */
	__u32 stop;                   /* the limit below which they end */
	__u32 limits[PROTECT_LIMITS]; /* limits of SYN-ACKs */
	__u32 slots[NUM_OUTCOMES];
	__u32 displace;      /* the limit of flows that a prefix displaces from the table */
	__u32 authenticated; /* the limit of SYNs with PROTECT_AUTHENTICATED */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct protection);
} protections SEC(".maps");

/* The state of a protection. Times are nanoseconds of CLOCK_MONOTONIC. It outlives a generation. */
struct protection_state {
	__u64 active_until; /* until then SYNs are answered with cookies */
	__u64 refused_until; /* until then no SYN is answered: the kernel refused a connection, or the protection is ending */
	__u32 refusals; /* how often the kernel refused a connection */
	__u32 refusal;  /* the error number of the last refusal */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct protection_state);
} protection_states SEC(".maps");
