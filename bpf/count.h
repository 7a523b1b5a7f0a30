/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One counter for each reason, per CPU: counting shares no cache line and needs no atomic operation. */
#pragma once

#include "kernel.h"
#include "packet.h"

struct counter {
	__u64 packets;
	__u64 octets;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

static __always_inline void count_packets(__u32 decision, __u32 packets, __u32 bytes)
{
	__u32 slot = decision >> 8;
	struct counter *c = bpf_map_lookup_elem(&counters, &slot);

	if (!c)
		return;
	c->packets += packets;
	c->octets += bytes;
}

static __always_inline void count(__u32 decision, __u32 bytes)
{
	count_packets(decision, 1, bytes);
}

/* Counts a packet, with those that the kernel has joined to it. */
static __always_inline void count_packet(__u32 decision, struct packet *p)
{
	count_packets(decision, 1 + joined_to(p), p->bytes);
}
