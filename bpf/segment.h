/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP segments to a protected service, called by the generated entry. The entry has found that the frame is usual
 * (internal/compile/xdp/entry), and the protection of its service. Most of a flood of ACKs is dropped with the data of
 * the frame alone. All other segments go to protect(), without the parsers, the classes and the rules of general().
 */
#pragma once

#include "client.h"
#include "clock.h"
#include "connlookup.h"
#include "cookie.h"
#include "count.h"
#include "flood.h"
#include "flow.h"
#include "parse.h"
#include "protect.h"
#include "protection.h"
#include "sample.h"
#include "synack.h"

/* A segment, or a datagram of UDP, in a usual frame. */
struct segment {
	struct ends ends;
	struct tcphdr *tcp;
	__u32 l4;     /* where the TCP header begins in the frame, */
	__u32 length; /* and that of the IP packet */
	__u32 left;   /* of which so much is the TCP header and what follows it */
};

/*
 * Reads the headers before TCP or UDP, whose header has so many bytes at least, and the ports. Returns false for a frame that the
 * entry did not find to be usual.
 */
static __always_inline bool read_usual_frame(struct segment *s, void *data, void *end, bool v6, __u32 header)
{
	struct ethernet *eth = data;
	struct ipv6hdr *six = (void *)(eth + 1);
	struct iphdr *four;

	s->l4 = sizeof(*eth);
	if ((void *)(eth + 1) > end)
		return false;
	if (eth->type == bpf_htons(ETH_P_8021Q)) {
		six = (void *)(eth + 1) + sizeof(struct vlan_tag);
		s->l4 += sizeof(struct vlan_tag);
	}
	four = (void *)six;
	s->ends.v6 = v6;
	if (v6) {
		if ((void *)(six + 1) + header > end)
			return false;
		s->ends.src.hi = high_half(&six->saddr);
		s->ends.src.lo = low_half(&six->saddr);
		s->ends.dst.hi = high_half(&six->daddr);
		s->ends.dst.lo = low_half(&six->daddr);
		s->tcp = (void *)(six + 1);
		s->left = bpf_ntohs(six->payload_len);
		s->length = s->left + sizeof(*six);
		s->l4 += sizeof(*six);
	} else {
		if ((void *)(four + 1) + header > end)
			return false;
		s->ends.src.hi = s->ends.dst.hi = 0;
		s->ends.src.lo = 0xffff00000000 | bpf_ntohl(four->saddr);
		s->ends.dst.lo = 0xffff00000000 | bpf_ntohl(four->daddr);
		s->tcp = (void *)(four + 1);
		s->length = bpf_ntohs(four->tot_len);
		s->left = s->length - sizeof(*four);
		s->l4 += sizeof(*four);
	}
	s->ends.ports = (__u32)bpf_ntohs(s->tcp->source) << 16 | bpf_ntohs(s->tcp->dest);
	return true;
}

static __always_inline bool read_segment(struct segment *s, void *data, void *end, bool v6)
{
	return read_usual_frame(s, data, end, v6, sizeof(struct tcphdr));
}

/* The options of a segment with timestamps only, in the layout of RFC 7323, appendix A. */
struct usual_timestamps {
	__be32 begin;
	__be32 tsval;
	__be32 tsecr;
};

/* Reads the timestamps for a cookie. Returns false if there are other options, or if a part of the header is missing. */
static __always_inline bool read_usual_timestamps(struct segment *s, void *end, struct syn_options *o)
{
	struct usual_timestamps *t = (void *)(s->tcp + 1);

	if (s->tcp->doff == sizeof(*s->tcp) / 4)
		return true;
	if (s->tcp->doff != (sizeof(*s->tcp) + sizeof(*t)) / 4 || s->left < sizeof(*s->tcp) + sizeof(*t) ||
	    (void *)(t + 1) > end ||
	    t->begin != bpf_htonl(OPTION_WORD(OPTION_NOP, OPTION_NOP, TCP_OPTION_TIMESTAMPS, 10)))
		return false;
	o->timestamps = 1;
	o->tsecr = bpf_ntohl(t->tsecr);
	return true;
}

/* Whether only a cookie could let a segment of no flow pass: cookies are on, and this CPU may not ask the kernel now. */
static __always_inline bool only_cookies(__u32 protection, __u64 now)
{
	struct protection_state *s = bpf_map_lookup_elem(&protection_states, &protection);
	__u32 asker = ASK_STRANGER;
	__u64 *next = bpf_map_lookup_elem(&askers, &asker);

	return s && next && !is_resting(s, now) && surely_active(&s->active_until, now) &&
	       exceeds_rate(next, now, ASK_INTERVAL, ASK_BURST);
}

/* Whether a segment certainly brings back no valid cookie. A global function. */
__noinline __u32 has_no_cookie(struct xdp_md *ctx, __u32 v6, __u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct syn_options o = {};
	struct segment s;

	return read_segment(&s, data, end, v6) && read_usual_timestamps(&s, end, &o) &&
	       !cookie_valid_for(&s.ends, bpf_ntohl(s.tcp->seq), bpf_ntohl(s.tcp->ack_seq), &o, now);
}

/*
 * Refuses a segment with ACK and without SYN, RST or FIN, of no known flow, to a service with METHOD_HOST, if nothing
 * lets it pass. hash is that of its flow; slot counts refused segments. Returns whether it was refused. If not, nothing
 * has changed, and protect() decides.
 */
static __always_inline bool refuse_segment(struct xdp_md *ctx, __u32 v6, __u32 protection, __u32 slot, __u64 hash)
{
	__u64 now = coarse_time();

	if (!only_cookies(protection, now))
		return false;
	if (cookie_may_come(hash, now >> SLOT_SHIFT) && !has_no_cookie(ctx, v6, now))
		return false;
	count(DECISION(slot, VERDICT_PASS), ctx->data_end - ctx->data);
	return true;
}

/* The decision about such a segment. The values are also in internal/compile/xdp/entry/protect.go. */
enum segment_outcome {
	SEGMENT_OTHER, /* protect() is to decide */
	SEGMENT_OPEN,  /* it passes: it is of an open connection */
	SEGMENT_REFUSED,
};

/* The arguments of the generated entry in one number, because a BPF function takes five arguments. */
enum {
	SEGMENT_PROTECTION =
		8,         /* above the states that are open, a bit each: the number of its protection, of 8 bits */
	SEGMENT_SLOT = 32, /* and the slot that counts what is refused */
};

/*
 * Decides such a segment for the generated entry, which has found that the filter does not have its flow, but cannot refuse
 * it itself. hash is that of the flow. Returns an enum segment_outcome. A global function.
 */
__noinline __u32 decide_unknown(struct xdp_md *ctx, __u32 v6, __u64 hash, __u64 what)
{
	return refuse_segment(ctx, v6, (__u8)(what >> SEGMENT_PROTECTION), what >> SEGMENT_SLOT, hash) ? SEGMENT_REFUSED
												       : SEGMENT_OTHER;
}

/* The same of a segment whose flow the filter may have. A global function. */
__noinline __u32 decide_known(struct xdp_md *ctx, __u32 v6, __u64 hash, __u64 what)
{
	__u32 answer = find_noted_flow(hash, what & ((1 << SEGMENT_PROTECTION) - 1));

	if (answer != FLOW_UNKNOWN)
		return answer == FLOW_OPEN ? SEGMENT_OPEN : SEGMENT_OTHER;
	return decide_unknown(ctx, v6, hash, what);
}

/*
 * Counts a decision with DECISION_PROTECTED, and calls protect() for its packet, which carries no question. Returns an
 * enum xdp_action. A global function.
 */
__noinline int protect_segment(struct xdp_md *ctx, __u32 v6, __u32 decision)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = {};
	struct segment s;
	__u32 header;

	if (!read_segment(&s, data, end, v6))
		return XDP_PASS;
	header = s.tcp->doff * 4;
	p.proto = IPPROTO_TCP;
	p.family = s.ends.v6 & 1;
	p.src = s.ends.src;
	p.dst = s.ends.dst;
	p.port = s.ends.ports & 0xffff;
	p.sport = s.ends.ports >> 16;
	p.flags = tcp_flags(s.tcp);
	p.length = s.length;
	p.bytes = end - data;
	p.l4 = s.l4;
	p.payload = header < sizeof(*s.tcp) || header > s.left ? 0 : s.l4 + header;
	p.end = s.l4 + s.left;
	count(decision, p.bytes);
	watch_traffic(ctx, decision);
	return protect(ctx, &p, decision);
}

/* known_client() for a usual frame that carries no question. A global function. */
__noinline __u32 known_in_frame(struct xdp_md *ctx, __u32 v6, __u32 number)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = {};
	struct segment s;

	if (!read_usual_frame(&s, data, end, v6, sizeof(struct udphdr)))
		return true;
	p.proto = IPPROTO_UDP;
	p.family = v6 & 1;
	p.src = s.ends.src;
	p.dst = s.ends.dst;
	p.port = PORT_UDP + (s.ends.ports & 0xffff);
	p.sport = PORT_UDP + (s.ends.ports >> 16);
	p.icmp = ICMP_NONE;
	p.length = s.length;
	p.l4 = s.l4;
	p.payload = s.l4 + sizeof(struct udphdr);
	p.end = s.l4 + s.left;
	return known_client(ctx, &p, number);
}

/* Reads where the UDP header begins in a usual frame, and how many bytes follow it. Returns false for a frame that is none. */
static __always_inline bool read_datagram(struct xdp_md *ctx, __u32 v6, __u32 *l4, __u32 *length)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct segment s;

	if (!read_usual_frame(&s, data, end, v6, sizeof(struct udphdr)) || s.left < sizeof(struct udphdr))
		return false;
	*l4 = s.l4;
	*length = s.left - sizeof(struct udphdr);
	return true;
}

/* proved_datagram() for a usual frame. A global function. */
__noinline __u32 proved_in_frame(struct xdp_md *ctx, __u32 v6, __u32 number)
{
	__u32 l4, length;

	return read_datagram(ctx, v6, &l4, &length) && proved_datagram(ctx, l4, length, number);
}

/* stray_datagram() for a usual frame. A global function. */
__noinline __u32 stray_in_frame(struct xdp_md *ctx, __u32 v6, __u32 number)
{
	__u32 l4, length;

	return !read_datagram(ctx, v6, &l4, &length) || stray_datagram(ctx, l4, length, number);
}
