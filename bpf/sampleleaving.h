/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Samples of the packets that leave. From these, user space learns which clients this host answers. */
#pragma once

#include "sample.h"
#include "skb.h"

/* Fills a sample with a leaving packet. Returns false when the frame cannot be read. */
static __always_inline bool fill_leaving(struct __sk_buff *skb, struct sample *s)
{
	s->slot = skb->ingress_ifindex; /* of a packet that is forwarded; 0: of this host */
	s->verdict = SAMPLE_LEAVES;
	s->ifindex = skb->ifindex;
	s->captured = copy_skb(skb, s->frame, &s->bytes);
	return s->captured;
}

/* Samples a packet that leaves. A global function, so that the verifier checks it once. */
__noinline int sample_leaving(struct __sk_buff *skb)
{
	__u32 key = 1;
	struct sampler *sampler = bpf_map_lookup_elem(&traffic_samplers, &key);
	struct sample *s;

	if (!sampler)
		return 0;
	s = reserve_sample(&traffic, sampler, &traffic_shares.leaving, bpf_ktime_get_ns());
	if (s)
		submit_sample(&traffic, s, fill_leaving(skb, s));
	return 0;
}

/* Chooses packets for sample_leaving() at random. */
static __always_inline void watch_leaving(struct __sk_buff *skb)
{
	if (samples_leaving && bpf_get_prandom_u32() < traffic_shares.leaving)
		sample_leaving(skb);
}
