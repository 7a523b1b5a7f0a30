/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * How the loaded program is asked what it would do: BPF_PROG_TEST_RUN with a question in front of the frame, where only
 * the host can put it (the metadata area is not part of what comes from the wire). Such a packet is not counted.
 */
#pragma once

/* The key that a question must carry, random for each generation; 0: no questions are answered. */
const volatile __u64 question_key;

struct question {
	__u64 key;      /* the generation's key */
	__u32 decision; /* out: slot and verdict */
	__u32 reserved;
};

static __always_inline bool answer_question(struct xdp_md *ctx, __u32 decision)
{
	struct question *q = (void *)(long)ctx->data_meta;

	if ((void *)(q + 1) > (void *)(long)ctx->data || q->key != question_key || !question_key)
		return false;
	q->decision = decision;
	return true;
}
