/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A decision: the reason, the verdict, and flags for further actions. */
#pragma once

#include "kernel.h"

/* The reasons that every policy has come first: the checks from slot 0 on, then these. Rules follow. */
enum slot {
	SLOT_REPLIES = 61, /* sent by the program itself, with their bytes */
	SLOT_NOT_IP = 62,
	SLOT_DEFAULT = 63,
	SLOT_RULES = 64,
};

enum verdict {
	VERDICT_PASS,
	VERDICT_DROP,
	VERDICT_REJECT,    /* the kernel's, from netfilter on */
	VERDICT_TRUNCATE,  /* answer a DNS query with an empty response */
	VERDICT_CHALLENGE, /* answer a query at a game server with a challenge, */
	VERDICT_SERVE,     /* or with the service's latest answer */
	VERDICT_MASK = 0x0f,
	DECISION_SPECIAL = 0x10,     /* a flag: the slot has an entry in actions */
	DECISION_CONDITIONAL = 0x20, /* a flag: if a condition holds; else decide() is to be called again */
	DECISION_PROTECTED = 0x40,   /* a flag: what passes goes through a protection, which actions names */
};

/* A decision is one number, as generated code returns it: a slot, and in the lowest byte the verdict and the flags. */
#define DECISION(slot, verdict) ((slot) << 8 | (verdict))

/* Actions beside the verdict. internal/compile/xdp/action.go fills the map. */
struct action {
	__u32 slip; /* of the queries to be answered, one in so many is, and the others are dropped; 0: all are answered */
	__u32 sample;     /* one in so many of the packets is handed to user space; 0: none */
	__u32 report;     /* whether to report the source, as one that exceeded a limit */
	__u32 protection; /* its number from 1 on, 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32); /* the slot */
	__type(value, struct action);
} actions SEC(".maps");
