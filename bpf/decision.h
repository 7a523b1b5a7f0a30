/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A decision: the reason, the verdict, and flags for further actions. */
#pragma once

#include "kernel.h"

/* A slot is the number of a reason. Checks have the slots from 0 on, then the reasons below follow, then the rules of the policy. */
enum slot {
	SLOT_REPLIES = 61, /* packets that the program itself sent, with their bytes */
	SLOT_NOT_IP = 62,
	SLOT_DEFAULT = 63,
	SLOT_RULES = 64,
};

enum verdict {
	VERDICT_PASS,
	VERDICT_DROP,
	VERDICT_REJECT,    /* only netfilter does this, never this program */
	VERDICT_TRUNCATE,  /* answer a DNS query with an empty response */
	VERDICT_CHALLENGE, /* answer a query at a game server with a challenge */
	VERDICT_SERVE,     /* answer such a query with the service's latest answer */
	VERDICT_MASK = 0x0f,
	DECISION_SPECIAL = 0x10,     /* a flag: the slot has an entry in actions */
	DECISION_CONDITIONAL = 0x20, /* a flag: valid if a condition holds; otherwise decide() must be called again */
	DECISION_PROTECTED = 0x40,   /* a flag: packets that pass go through the protection that actions names */
};

/* A decision is one number, as generated code returns it: a slot, and in the lowest byte the verdict and the flags. */
#define DECISION(slot, verdict) ((slot) << 8 | (verdict))

/* Actions beside the verdict. internal/compile/xdp/action.go fills the map. */
struct action {
	__u32 slip;       /* VERDICT_TRUNCATE answers one in so many queries, and drops the others; 0: it answers all */
	__u32 sample;     /* one in so many packets is sent to user space; 0: none */
	__u32 report;     /* whether to report that the source exceeded a limit */
	__u32 protection; /* its number from 1 on, 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32); /* the slot */
	__type(value, struct action);
} actions SEC(".maps");
