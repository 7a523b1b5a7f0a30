/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Acts on a decision: samples, reports, answers, protects, passes or drops. */
#pragma once

#include "decision.h"
#include "offence.h"
#include "packet.h"
#include "protect.h"
#include "protection.h"
#include "dnsreply.h"
#include "gamereply.h"
#include "sample.h"

/* Whether any slot has an entry in actions. Constant from load on; when false, act_specially() is removed. */
const volatile bool specials;

/*
 * True with a probability of 1 in n. A counter would depend on the packets of others: from a client that sends
 * queries in pairs (A, AAAA), it could drop the same query of each pair every time.
 */
static __always_inline bool one_in(__u32 n)
{
	return (__u64)bpf_get_prandom_u32() * n >> 32 == 0;
}

/* Takes the actions that the slot has in the map. Returns whether the packet must be dropped because slip is set. */
__noinline __u32 act_specially(context *ctx, struct packet *p, __u32 decision)
{
	__u32 slot = decision >> 8;
	struct action *a = bpf_map_lookup_elem(&actions, &slot);

	if (!p || !a)
		return 0;
	if (sampling && a->sample && one_in(a->sample))
		take_sample(ctx, p, decision);
	if (reporting && a->report)
		report_offence(p);
	return a->slip && !one_in(a->slip);
}

static __always_inline int act(context *ctx, struct packet *p, __u32 decision)
{
	__u32 verdict = decision & VERDICT_MASK;

	if (specials && (decision & DECISION_SPECIAL) && act_specially(ctx, p, decision))
		return ACTION_DROP;
	if (protects && (decision & DECISION_PROTECTED))
		return protect(ctx, p, decision);
	if (answers && verdict == VERDICT_TRUNCATE)
		return answer(ctx, p);
	if (challenges && verdict == VERDICT_CHALLENGE)
		return challenge(ctx, p);
	if (serves && verdict == VERDICT_SERVE)
		return serve(ctx, p);
	if (admits && verdict == VERDICT_PASS)
		return admit(ctx, p);
	return verdict == VERDICT_PASS ? ACTION_PASS : ACTION_DROP;
}
