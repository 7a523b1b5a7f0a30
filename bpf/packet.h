/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the parsers find in a frame, and what the generated rules read of it. */
#pragma once

#include "kernel.h"

/* The values of fields that stand for "the packet has none". */
enum {
	PORT_UDP = 1 << 16,
	PORT_NONE = 2 << 16,
	FLAGS_NONE = 256,
	ICMP_V6 = 1 << 16,
	ICMP_NONE = 2 << 16,
	VLAN_NONE = 4096,
	DNS_RESPONSE = 65536,
	DNS_OTHER,
	DNS_MALFORMED,
	DNS_NONE,
	MSS_MISSING = 65536, /* a segment with SYN that has no such option */
	MSS_NONE,            /* no segment with SYN */
};

enum {
	FRAGMENT_NONE,
	FRAGMENT_FIRST,
	FRAGMENT_LATER,
};

/* An address of either family: IPv4 in its mapped form, ::ffff:a.b.c.d. Big endian numbers in host byte order. */
struct address {
	__u64 hi;
	__u64 lo;
};

/* The addresses that a limit charges, and the time of the charge. */
struct charged {
	__u64 now; /* nanoseconds of CLOCK_MONOTONIC, 0 when nothing has asked for it yet */
	struct address src;
	struct address dst;
};

/*
 * struct packet is what generated code reads. The fields have the order of internal/model/packet/field.go. The results for
 * the addresses follow. A test compares the offsets with those of internal/compile/image/layout.go.
 */
struct packet {
	__u32 proto;
	__u32 port;
	__u32 sport;
	__u32 family;
	__u32 flags;
	__u32 icmp;
	__u32 length;
	__u32 ttl;
	__u32 dscp;
	__u32 fragment;
	__u32 vlan;
	__u32 dns;
	__u32 verified;
	__u32 mss;

	__u32 src_class; /* what the address tables say of the addresses */
	__u32 dst_class;
	__u32 src_dynamic; /* the dynamic sets that have them, a bit each */
	__u32 dst_dynamic;

	/* Read by conditions (condition.h). Generated code passes these fields on and does not read them. */
	__u32 dns_names; /* the name sets that have the name of the query, a bit each */
	__u32 l4;        /* where the L4 header begins in the frame, 0 when there is none */
	__u32 payload;   /* what follows that header, 0 when it is cut short */
	__u32 end;       /* and where the IP packet ends: behind its last byte that is in the frame */
	__u32 bytes;     /* of the whole frame */
	__u32 seen;      /* see below */
	__u32 exceeded;  /* the number of the limit that the packet exceeds, and 1; 0: none */
	__u32 first;     /* the first alternative of the tables that decide() is to look at */
	__u32 condition; /* that it asks for, with DECISION_CONDITIONAL */
	__u32 flow_age;  /* seconds since its flow was noted, once flow_state() has found it */
	__u32 flow_hash; /* the lower half of the hash of its flow, once flow_state() has looked for it */
	__u32 none;      /* 0: it keeps what follows at a multiple of 8 bytes */
	__u64 patterns;  /* found in the payload, once SEEN_PATTERNS is set; before, all bits are set */
	union {
		struct charged charged;
		struct { /* the same */
			__u64 now;
			struct address src;
			struct address dst;
		};
	};
};

/* Bits of seen. */
enum {
	SEEN_QUESTION = 1,    /* the packet is a question (explain.h): nothing may be counted, charged or kept */
	SEEN_CHARGE = 2,      /* but for limits, by which tests ask how they count */
	SEEN_PATTERNS = 4,    /* patterns is known */
	SEEN_ACT = 8,         /* a question that is counted and acted on as any packet, at the time that it gives */
	SEEN_ENTRY = 16,      /* of an answer: the generated entry decided, not general() */
	SEEN_GENERAL = 32,    /* a question that general() is to decide */
	SEEN_EXAMINED = 64,   /* a packet over a limit that bans was charged as one that may be reported */
	SEEN_COOKIE = 256,    /* a query has a cookie of ours (challenge.h), */
	SEEN_NO_COOKIE = 512, /* or has none */
	SEEN_OFFENDS = 128,   /* it is proved, and packets that are proved exceed the limit by themselves */
};

enum kind {
	KIND_NOT_IP,
	KIND_MALFORMED,
	KIND_IP,
};

/* A frame as far as it was parsed. */
struct frame {
	struct packet packet;
	__u64 failed; /* checks that the frame fails */
};
