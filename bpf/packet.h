/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the program knows of a frame, and what the generated rules see of it. */
#pragma once

/* The values of fields that stand for "the packet has none". */
enum {
	PORT_UDP = 1 << 16,
	PORT_NONE = 2 << 16,
	FLAGS_NONE = 256,
	ICMP_V6 = 1 << 16,
	ICMP_NONE = 2 << 16,
	VLAN_NONE = 4096,
};

enum {
	FRAGMENT_NONE,
	FRAGMENT_FIRST,
	FRAGMENT_LATER,
};

/*
 * struct packet is what generated code reads. The fields stand in the order of internal/packet/field.go; the
 * classification of the addresses follows. A test compares it with the offsets that internal/compile uses.
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

	__u32 src_class; /* what the address tables say of the addresses */
	__u32 dst_class;
	__u32 src_dynamic; /* the dynamic sets that have them, a bit each */
	__u32 dst_dynamic;
};

/* An address of either family: IPv4 in its mapped form, ::ffff:a.b.c.d. Big endian numbers in host byte order. */
struct address {
	__u64 hi;
	__u64 lo;
};

enum kind {
	KIND_NOT_IP,
	KIND_MALFORMED,
	KIND_IP,
};

/* A frame as far as it was parsed. */
struct frame {
	struct packet packet;
	struct address src;
	struct address dst;
	__u64 failed; /* enabled checks that the frame fails */
	__u32 octets; /* of the whole frame */
};
