/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers usual SYNs while cookies are on. The generated entry calls it. A usual SYN has no data. Its options are those of
 * Linux and Android, those of Windows, MSS alone, or none, as flood tools send it. The answer takes a third fewer
 * instructions than in protect(). The functions are those of protect(); known properties of such a SYN
 * are constants, so they are not stored in memory.
 */
#pragma once

#include "clock.h"
#include "cookie.h"
#include "count.h"
#include "ends.h"
#include "flow.h"
#include "l4.h"
#include "parse.h"
#include "protect.h"
#include "protection.h"
#include "sample.h"
#include "segment.h"
#include "synack.h"

enum {
	SYN_OTHER = 0, /* not an action that is used: nothing has changed, and protect() must decide */

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

/* The options of a SYN as Windows sends them, 12 bytes. */
struct plain_options {
	__be16 mss_begins;
	__be16 mss;
	__be16 wscale_begins; /* behind a NOP */
	__u8 wscale_size;
	__u8 wscale;
	__be32 sack; /* behind two NOPs */
};

/* Bytes of TCP headers of SYNs without timestamps. */
enum {
	BARE_SYN = sizeof(struct tcphdr), /* without options */
	MSS_SYN = BARE_SYN + 4,           /* with MSS alone */
	PLAIN_SYN = BARE_SYN + sizeof(struct plain_options),
};

/* Reads the options of Windows, MSS alone, or none. Returns false for others, and when data follow the header. */
static __always_inline bool read_plain(struct segment *g, void *end, struct syn_options *to)
{
	struct plain_options *o = (void *)(g->tcp + 1);

	to->wscale = WSCALE_NONE;
	if (g->left != g->tcp->doff * 4)
		return false;
	if (g->left == BARE_SYN)
		return true;
	if ((void *)&o->wscale_begins > end || o->mss_begins != bpf_htons(0x0204) || !o->mss)
		return false;
	to->mss = bpf_ntohs(o->mss);
	if (g->left == MSS_SYN)
		return true;
	if (g->left != PLAIN_SYN || (void *)(o + 1) > end || o->wscale_begins != bpf_htons(0x0103) ||
	    o->wscale_size != 3 || o->sack != bpf_htonl(OPTION_WORD(OPTION_NOP, OPTION_NOP, TCP_OPTION_SACK, 2)))
		return false;
	to->wscale = o->wscale < TCP_WSCALE_MAX ? o->wscale : TCP_WSCALE_MAX;
	to->sack = 1;
	return true;
}

/* Whether SYNs are answered with cookies that encode all usual options, and the time of cookies need not be extended. */
static __always_inline bool answers_surely(struct protection *pr, struct protection_state *s, __u64 now)
{
	const __u32 all = OFFER_WSCALE | OFFER_SACK | OFFER_TIMESTAMPS;

	return (pr->offers & all) == all && !is_resting(s, now) && surely_active(&s->active_until, now);
}

/* Whether the flow table has no flow of a packet. Stores the flow's hash in p. Buckets are swept by protect(), for other packets. */
static __always_inline bool is_surely_new(struct packet *p)
{
	__u64 hash = flow_hash(p);

	p->flow_hash = hash;
	return !(*filter_word(hash) & filter_bit(hash));
}

static __always_inline void read_usual_packet(struct packet *p, struct segment *g, bool v6)
{
	p->family = v6;
	p->src = g->ends.src;
	p->dst = g->ends.dst;
	p->port = g->ends.ports & 0xffff;
	p->sport = g->ends.ports >> 16;
	p->length = g->length;
}

/* Writes a SYN-ACK. size is the size of its TCP header in bytes, which is that of the SYN, too. */
static __always_inline void put_answer(struct packet *p, struct segment *g, struct syn_ack *a, bool v6, __u32 size)
{
	struct iphdr *ip = (void *)g->tcp - (v6 ? sizeof(struct ipv6hdr) : sizeof(*ip));
	struct writer w = { .at = (void *)ip, .roomy = true };

	put_syn_ack(&w, ip, g->tcp, p, a, v6, size);
}

/* Writes a SYN-ACK without timestamps. The length of the SYN says which options it has. */
static __always_inline void put_plain_answer(struct packet *p, struct segment *g, struct syn_ack *a, bool v6)
{
	if (g->left == PLAIN_SYN) {
		put_answer(p, g, a, v6, PLAIN_SYN);
		return;
	}
	a->options.sack = 0;
	a->options.wscale = WSCALE_NONE;
	if (g->left == MSS_SYN) {
		put_answer(p, g, a, v6, MSS_SYN);
		return;
	}
	a->options.mss = 0;
	put_answer(p, g, a, v6, BARE_SYN);
}

/* Turns a usual SYN into its SYN-ACK, which has the same length. */
static __always_inline void answer_usual_options(struct packet *p, struct segment *g, struct syn_ack *a,
						 struct protection *pr, bool v6, bool stamped)
{
	__u32 isn = bpf_ntohl(g->tcp->seq);

	a->options.tsecr = a->options.tsval;
	a->seq = cookie_of(p, isn, &a->options, p->now);
	announce(&a->options, p, pr);
	a->ack = isn + 1;
	a->window = pr->window;
	if (stamped)
		put_answer(p, g, a, v6, USUAL_SYN);
	else
		put_plain_answer(p, g, a, v6);
}

/*
 * Whether the answer to a usual SYN would exceed a limit of SYN-ACKs. It is charged at the time of the packet, as by protect(). That time
 * is a few ticks late, which is little beside the burst of such a limit. The first limit, mostly the only one, is charged without a call.
 */
static __always_inline bool is_over_limits(struct protection *pr, struct packet *p, bool v6)
{
	struct charged who = { .now = p->now, .src = p->src, .dst = p->dst }, rest;
	__u32 first;

	if (!pr->num_limits)
		return false;
	first = charge_at_once(&who, pr->limits[0], v6, p->length);
	if (first == EXCEEDED)
		return true;
	if (first == CHARGED && pr->num_limits == 1)
		return false;
	rest = who; /* so that `who` need not be in memory */
	return too_many_answers(pr, first == CHARGED, &rest, traits_of(p));
}

/* Answers a SYN with timestamps, as Linux sends it, or one without. v6 and stamped are constants. */
static __always_inline int answer_usual(context *ctx, bool v6, bool stamped, __u32 decision, struct protection_state *s,
					struct protection *pr)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct usual_options *options = NULL;
	struct syn_ack a = {};
	struct packet p = {};
	struct segment g;

	if (!read_segment(&g, data, end, v6))
		return SYN_OTHER;
	if (stamped) {
		options = usual_options_of(&g, end);
		if (!options)
			return SYN_OTHER;
	} else if (!read_plain(&g, end, &a.options)) {
		return SYN_OTHER;
	}
	p.now = coarse_time();
	if (!answers_surely(pr, s, p.now))
		return SYN_OTHER;
	read_usual_packet(&p, &g, v6);
	p.bytes = frame_bytes(ctx, data, end);
	if (!is_shown(data) || is_loopback(p.dst, v6) || may_be_no_peer(&p) || !is_surely_new(&p))
		return SYN_OTHER;
	count(decision, p.bytes);
	watch_traffic(ctx, decision);
	if (is_over_limits(pr, &p, v6)) {
		count_outcome(&p, pr, SYN_LIMITED);
		return ACTION_DROP;
	}
	swap_ethernet(data);
	if (stamped)
		read_usual(options, &a.options);
	answer_usual_options(&p, &g, &a, pr, v6, stamped);
	return send_answer(ctx, &p, pr, g.l4 + (stamped ? USUAL_SYN : g.left));
}

/*
 * Answers a SYN without other flags to a service with METHOD_HOST, and counts it. decision is as for protect_segment(). s
 * and pr are the state and the configuration of the protection; the verifier assumes that they may be null. Returns an enum
 * xdp_action, or SYN_OTHER. answer_usual_syn() is for SYNs with the options of Linux and Android, answer_plain_syn() for
 * shorter ones. Both are global functions.
 */
__noinline int answer_usual_syn(context *ctx, __u32 v6, __u32 decision, struct protection_state *s,
				struct protection *pr)
{
	if (!s || !pr)
		return SYN_OTHER;
	return v6 ? answer_usual(ctx, true, true, decision, s, pr) : answer_usual(ctx, false, true, decision, s, pr);
}

__noinline int answer_plain_syn(context *ctx, __u32 v6, __u32 decision, struct protection_state *s,
				struct protection *pr)
{
	if (!s || !pr)
		return SYN_OTHER;
	return v6 ? answer_usual(ctx, true, false, decision, s, pr) : answer_usual(ctx, false, false, decision, s, pr);
}
