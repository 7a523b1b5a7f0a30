/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The results of the parsers for a frame. The generated rules read them. */
#pragma once

#include "context.h"

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
	MSS_MISSING = 65536, /* a segment with SYN and without the MSS option */
	MSS_NONE,            /* not a segment with SYN */
};

enum {
	FRAGMENT_NONE,
	FRAGMENT_FIRST,
	FRAGMENT_LATER,
};

/* An address of either family, IPv4 in its mapped form ::ffff:a.b.c.d. Each half is a number in host byte order; hi is the upper half. */
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
 * Generated code reads struct packet. The first fields have the order of internal/model/packet/field.go. The results of the lookups of
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

	__u32 src_class; /* the classes of the addresses (classify.h) */
	__u32 dst_class;
	__u32 src_dynamic; /* the dynamic sets that contain the addresses, one bit each */
	__u32 dst_dynamic;

	/* Conditions (condition.h) read the fields from here on. Generated code only passes them on. */
	__u32 dns_names; /* the name sets that contain the name of the query, one bit each */
	__u32 l4;        /* where the L4 header begins in the frame, 0 when there is none */
	__u32 payload;   /* where the payload begins in the frame, 0 when the L4 header is cut short */
	__u32 end;       /* where the IP packet ends in the frame: the offset after its last byte */
	__u32 bytes;     /* the length of the frame */
	__u32 seen;      /* bits: SEEN_... */
	__u32 exceeded;  /* 1 + the number of the limit that the packet exceeds; 0: none */
	__u32 first;     /* the number of the first alternative in the tables of rules that decide() examines */
	__u32 condition; /* the number of the condition that decide() asks for, with DECISION_CONDITIONAL */
	__u32 flow_age;  /* seconds since its flow was noted, once flow_state() has found it */
	__u32 flow_hash; /* the lower half of the hash of its flow, once flow_state() has looked for it */
	__u32 more;      /* how many more packets the kernel has joined to this one (context.h); 0 at XDP */
	__u64 patterns;  /* the patterns in the payload, one bit each; all bits are set until SEEN_PATTERNS is set */
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
	SEEN_QUESTION = 1,    /* the packet is a question (explain.h), which changes no counter, limit or state */
	SEEN_CHARGE = 2,      /* a question that is charged to limits: so tests see how limits count */
	SEEN_PATTERNS = 4,    /* patterns is known */
	SEEN_ACT = 8,         /* a question that is counted and acted on like any packet, at the time in the question */
	SEEN_ENTRY = 16,      /* in an answer: the generated entry decided, not general() */
	SEEN_GENERAL = 32,    /* a question that general() must decide */
	SEEN_EXAMINED = 64,   /* a packet over a limit that bans; may_report() (offence.h) has allowed its report */
	SEEN_ANSWERED = 1024, /* in an answer at tc */
	SEEN_COOKIE = 256,    /* a query that has a cookie of this program (challenge.h) */
	SEEN_NO_COOKIE = 512, /* a query that has no such cookie */
	SEEN_OFFENDS = 128,   /* the source is proved, and packets with a proved source alone exceed the limit */
};

/* How many more packets the kernel has joined to a packet. At XDP a constant, so that the compiler removes the code for them. */
static __always_inline __u32 joined_to(struct packet *p)
{
	return JOINS ? p->more : 0;
}

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
