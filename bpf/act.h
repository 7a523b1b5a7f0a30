/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is done with a packet that has its decision. */
#pragma once

#include "decision.h"
#include "offence.h"
#include "packet.h"
#include "protect.h"
#include "protection.h"
#include "reply.h"
#include "sample.h"

/* Whether any slot has an entry in actions. Constant from load on: without one, act_specially() is left out. */
const volatile bool specials;

/*
 * True once in n times. At random: a count would follow what others send, and a client that asks in pairs (A, AAAA)
 * could find the same one of them dropped each time.
 */
static __always_inline bool one_in(__u32 n)
{
	return (__u64)bpf_get_prandom_u32() * n >> 32 == 0;
}

/* Does what actions says. Returns whether the packet is dropped for it. */
__noinline __u32 act_specially(struct xdp_md *ctx, struct packet *p, __u32 decision)
{
	__u32 slot = decision >> 8;
	struct action *a = bpf_map_lookup_elem(&actions, &slot);

	if (!p || !a)
		return 0;
	if (sampling && a->sample && one_in(a->sample))
		take_sample(ctx, p, decision);
	if (reporting && a->report)
		report_offence(ctx, p);
	return a->slip && !one_in(a->slip);
}

static __always_inline int act(struct xdp_md *ctx, struct packet *p, __u32 decision)
{
	__u32 verdict = decision & VERDICT_MASK;

	if (specials && (decision & DECISION_SPECIAL) && act_specially(ctx, p, decision))
		return XDP_DROP;
	if (protects && (decision & DECISION_PROTECTED))
		return protect(ctx, p, decision);
	if (answers && verdict == VERDICT_TRUNCATE)
		return answer(ctx, p);
	return verdict == VERDICT_PASS ? XDP_PASS : XDP_DROP;
}
