/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Questions to the loaded program: BPF_PROG_TEST_RUN with a question in the metadata area in front of the frame. Only
 * the host can write there, a packet from the wire cannot. A packet with a question is not counted.
 */
#pragma once

#include "context.h"
#include "packet.h"

/* The key that a question must carry, random for each generation; 0: no questions are answered. */
const volatile __u64 question_key;

struct question {
	__u64 key;      /* the generation's key */
	__u64 now;      /* the time for limits, in nanoseconds of CLOCK_MONOTONIC; 0: the present */
	__u32 decision; /* out: slot and verdict */
	__u32 flags;    /* SEEN_CHARGE, SEEN_ACT, SEEN_GENERAL; out: SEEN_ENTRY when the entry decided */
};

#ifdef AT_TC

/*
 * At tc the question is in the five words of cb: the key and the time, the lower halves first, and the flags. The answer is
 * in the third and the last.
 */
static __always_inline bool read_question_of(context *ctx, __u64 *now, __u32 *flags)
{
	if (ctx->cb[0] != (__u32)question_key || ctx->cb[1] != question_key >> 32 || !question_key)
		return false;
	*now = ctx->cb[2] | (__u64)ctx->cb[3] << 32;
	*flags = ctx->cb[4];
	return true;
}

static __always_inline void write_answer(context *ctx, __u32 decision, __u32 flags)
{
	ctx->cb[2] = decision;
	ctx->cb[4] = flags | SEEN_ANSWERED;
}

#else

/* The question that a packet carries, NULL when it carries none. */
static __always_inline struct question *question_of(context *ctx)
{
	struct question *q = (void *)(long)ctx->data_meta;

	if ((void *)(q + 1) > (void *)(long)ctx->data || q->key != question_key || !question_key)
		return NULL;
	return q;
}

/* Reads the question that a packet carries. Returns false when it carries none. */
static __always_inline bool read_question_of(context *ctx, __u64 *now, __u32 *flags)
{
	struct question *q = question_of(ctx);

	if (!q)
		return false;
	*now = q->now;
	*flags = q->flags;
	return true;
}

static __always_inline void write_answer(context *ctx, __u32 decision, __u32 flags)
{
	struct question *q = question_of(ctx);

	if (!q)
		return;
	q->decision = decision;
	q->flags = flags;
}

#endif

static __always_inline void read_question(context *ctx, struct packet *p)
{
	__u32 flags = 0;
	__u64 now = 0;

	p->seen = read_question_of(ctx, &now, &flags) ? SEEN_QUESTION | (flags & (SEEN_CHARGE | SEEN_ACT)) : 0;
	p->now = now;
}

/* Answers a question, if there is one. path is SEEN_ENTRY or 0. */
static __always_inline bool answer_question(context *ctx, __u32 decision, __u32 path)
{
	__u32 flags;
	__u64 now;

	if (!read_question_of(ctx, &now, &flags))
		return false;
	write_answer(ctx, decision, (flags & (SEEN_CHARGE | SEEN_ACT)) | path);
	return true;
}
