/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What rules ask for beside a verdict, by the slot of the decision. */
#pragma once

/* What is done beside the verdict. internal/compile/action.go fills the map. */
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
