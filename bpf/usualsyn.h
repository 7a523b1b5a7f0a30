/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The answer to a usual SYN, called by the generated entry. While cookies are on, a SYN without data that has the
 * options of Linux and Android is answered here, with half the instructions of protect(). The functions are those of
 * protect(); known properties of such a SYN are constants, so they are not stored in memory.
 */
#pragma once

#include "clock.h"
#include "cookie.h"
#include "count.h"
#include "flow.h"
#include "l4.h"
#include "parse.h"
#include "protect.h"
#include "protection.h"
#include "sample.h"
#include "segment.h"
#include "synack.h"

enum {
	SYN_OTHER = 0, /* no enum xdp_action that is used: the SYN is for protect(), and nothing has changed */

	USUAL_SYN = sizeof(struct tcphdr) + sizeof(struct usual_options), /* bytes of TCP header */
};

/* The options of a segment, or NULL if they are not the usual ones or if data follows them. */
static __always_inline struct usual_options *usual_options_of(struct segment *g, void *end)
{
	struct usual_options *o = (void *)(g->tcp + 1);

	if (g->left != USUAL_SYN || g->tcp->doff != USUAL_SYN / 4 || !are_usual(o, sizeof(*o), end) || !o->mss)
		return NULL;
	return o;
}

/* Whether SYNs are answered with cookies that encode all usual options, and the time of cookies need not be extended. */
static __always_inline bool answers_surely(struct protection *pr, struct protection_state *s, __u64 now)
{
	const __u32 all = OFFER_WSCALE | OFFER_SACK | OFFER_TIMESTAMPS;

	return (pr->offers & all) == all && !is_resting(s, now) && surely_active(s, now);
}

/* Whether the flow table has no flow of a packet. Stores the flow's hash in p. Buckets are swept by protect(), for other packets. */
static __always_inline bool is_surely_new(struct packet *p)
{
	__u64 hash = flow_hash(p);

	p->flow_hash = hash;
	return !(*filter_word(hash) & filter_bit(hash));
}

static __always_inline void read_usual_packet(struct packet *p, struct segment *g, void *data, void *end, bool v6)
{
	p->family = v6;
	p->src = g->ends.src;
	p->dst = g->ends.dst;
	p->port = g->ends.ports & 0xffff;
	p->sport = g->ends.ports >> 16;
	p->length = g->length;
	p->bytes = end - data;
}

/* Turns a usual SYN into its SYN-ACK, which has the same length. */
static __always_inline void answer_usual_options(struct packet *p, struct segment *g, struct usual_options *options,
						 struct protection *pr, bool v6)
{
	struct iphdr *ip = (void *)g->tcp - (v6 ? sizeof(struct ipv6hdr) : sizeof(*ip));
	struct writer w = { .at = (void *)ip, .roomy = true };
	__u32 isn = bpf_ntohl(g->tcp->seq), tsval;
	struct syn_ack a = {};

	read_usual(options, &a.options);
	tsval = a.options.tsval;
	a.seq = cookie_of(p, isn, &a.options);
	announce(&a.options, p, pr, tsval);
	a.ack = isn + 1;
	a.window = pr->window;
	put_syn_ack(&w, ip, g->tcp, p, &a, v6, USUAL_SYN);
}

static __always_inline int answer_usual(struct xdp_md *ctx, bool v6, __u32 decision, __u32 number)
{
	struct protection_state *s = bpf_map_lookup_elem(&protection_states, &number);
	struct protection *pr = bpf_map_lookup_elem(&protections, &number);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct usual_options *options;
	struct charged who = {};
	struct packet p = {};
	struct segment g;

	if (!s || !pr || !read_segment(&g, data, end, v6))
		return SYN_OTHER;
	options = usual_options_of(&g, end);
	p.now = coarse_time();
	if (!options || !answers_surely(pr, s, p.now))
		return SYN_OTHER;
	read_usual_packet(&p, &g, data, end, v6);
	if (is_no_source(&p) || !is_surely_new(&p) || is_to_group(data))
		return SYN_OTHER;
	count(decision, p.bytes);
	watch_traffic(ctx, decision);
	who.now = p.now; /* as protect() charges it: a tick is nothing beside the burst of a limit of SYN-ACKs */
	who.src = p.src;
	who.dst = p.dst;
	if (too_many_answers(pr, &who, traits_of(&p))) {
		count_outcome(&p, pr, SYN_LIMITED);
		return XDP_DROP;
	}
	return_ethernet(data);
	answer_usual_options(&p, &g, options, pr, v6);
	return send_answer(ctx, &p, pr, g.l4 + USUAL_SYN);
}

/*
 * Answers a SYN without other flags to a service with METHOD_HOST, and counts it. decision is as for protect_segment(),
 * number that of the protection. Returns an enum xdp_action, or SYN_OTHER. A global function.
 */
__noinline int answer_usual_syn(struct xdp_md *ctx, __u32 v6, __u32 decision, __u32 number)
{
	return v6 ? answer_usual(ctx, true, decision, number) : answer_usual(ctx, false, decision, number);
}
