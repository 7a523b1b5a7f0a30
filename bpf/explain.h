/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Questions to the loaded program: BPF_PROG_TEST_RUN with a question in the metadata area in front of the frame. Only
 * the host can write there, a packet from the wire cannot. Such a packet is not counted.
 */
#pragma once

#include "packet.h"

/* The key that a question must carry, random for each generation; 0: no questions are answered. */
const volatile __u64 question_key;

struct question {
	__u64 key;      /* the generation's key */
	__u64 now;      /* nanoseconds of CLOCK_MONOTONIC that limits count by, 0 for the present */
	__u32 decision; /* out: slot and verdict */
	__u32 flags;    /* SEEN_CHARGE, SEEN_ACT, SEEN_GENERAL; out: SEEN_ENTRY when the entry decided */
};

/* The question that a packet carries, NULL when it is none. */
static __always_inline struct question *question_of(struct xdp_md *ctx)
{
	struct question *q = (void *)(long)ctx->data_meta;

	if ((void *)(q + 1) > (void *)(long)ctx->data || q->key != question_key || !question_key)
		return NULL;
	return q;
}

static __always_inline void read_question(struct xdp_md *ctx, struct packet *p)
{
	struct question *q = question_of(ctx);

	p->seen = q ? SEEN_QUESTION | (q->flags & (SEEN_CHARGE | SEEN_ACT)) : 0;
	p->now = q ? q->now : 0;
}

/* Answers a question, if there is one. path is SEEN_ENTRY or 0. */
static __always_inline bool answer_question(struct xdp_md *ctx, __u32 decision, __u32 path)
{
	struct question *q = question_of(ctx);

	if (q) {
		q->decision = decision;
		q->flags = (q->flags & (SEEN_CHARGE | SEEN_ACT)) | path;
	}
	return q;
}
