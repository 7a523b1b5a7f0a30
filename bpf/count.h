/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One counter for each reason. Per CPU, so that counting shares no cache line and needs no atomic operation. */
#pragma once

/* The reasons that no policy changes have the first slots: the checks from 0 on, then these. Rules follow. */
enum slot {
	SLOT_REPLIES = 61, /* sent by the program itself, with their octets */
	SLOT_NOT_IP = 62,
	SLOT_DEFAULT = 63,
	SLOT_RULES = 64,
};

enum verdict {
	VERDICT_PASS,
	VERDICT_DROP,
	VERDICT_REJECT,   /* the kernel's, from netfilter on */
	VERDICT_TRUNCATE, /* answer a DNS query with an empty response */
	VERDICT_MASK = 0x0f,
	DECISION_SPECIAL = 0x10,     /* a flag: the slot has an entry in actions */
	DECISION_CONDITIONAL = 0x20, /* a flag: if a condition holds; else decide() is to be called again */
	DECISION_PROTECTED = 0x40,   /* a flag: what passes goes through a protection, which actions names */
};

/* A decision is a slot, and in the lowest octet a verdict and flags, in one number, as generated code returns it. */
#define DECISION(slot, verdict) ((slot) << 8 | (verdict))

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

static __always_inline void count(__u32 decision, __u32 octets)
{
	__u32 slot = decision >> 8;
	struct counter *c = bpf_map_lookup_elem(&counters, &slot);

	if (!c)
		return;
	c->packets++;
	c->octets += octets;
}
