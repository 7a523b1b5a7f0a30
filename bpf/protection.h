/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Configuration and state of the protection of services against floods of SYNs and ACKs. */
#pragma once

#include "kernel.h"

/* Whether any rule has a protection, and any has METHOD_HOST. Constant from load on. */
const volatile bool protects;
const volatile bool protect_host;

enum method {
	METHOD_HOST = 1, /* our own cookies; ingress.h gives the kernel the connection */
	METHOD_LISTENER, /* those of the kernel's listening socket */
	METHOD_ROUTER,   /* those of netfilter's SYNPROXY, which stands behind */
};

enum {
	PROTECT_ALWAYS = 1,        /* flags: every SYN is answered so */
	PROTECT_AUTHENTICATED = 2, /* but those with TCP-AO or MD5 are the kernel's, as often as a limit says */

	OFFER_WSCALE = 1, /* options that the service does */
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
	__u16 mss[2]; /* that is announced, by family */
	__u16 window; /* likewise */
	__u8 wscale;  /* likewise */
	__u8 num_limits;
	__u32 start;                  /* the limit beyond which cookies begin, */
	__u32 stop;                   /* and that below which they end */
	__u32 limits[PROTECT_LIMITS]; /* of SYN-ACKs */
	__u32 slots[NUM_OUTCOMES];
	__u32 displace;      /* the limit of flows that a prefix displaces from the table, */
	__u32 authenticated; /* and that of SYNs with PROTECT_AUTHENTICATED */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct protection);
} protections SEC(".maps");

/* The state of a protection. Times are nanoseconds of CLOCK_MONOTONIC. It outlives a generation. */
struct protection_state {
	__u64 active_until;  /* SYNs are answered with cookies */
	__u64 refused_until; /* no SYN is answered: the kernel took no connection from us, or the protection is to end */
	__u32 refusals;      /* how often that was, */
	__u32 refusal;       /* and by which error number at last */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct protection_state);
} protection_states SEC(".maps");
