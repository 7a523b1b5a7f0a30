/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Decides TCP segments to a protected service. The generated entry (internal/compile/xdp/entry) calls it, after it has found that the
 * frame is usual, and which protection its service has. Most segments of a flood of ACKs are dropped with the data of
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
#include "newcomer.h"
#include "parse.h"
#include "protect.h"
#include "protection.h"
#include "sample.h"
#include "synack.h"

/* A segment, or a datagram of UDP, in a usual frame. */
struct segment {
	struct ends ends;
	struct tcphdr *tcp;
	__u32 l4;     /* the offset of the TCP header in the frame */
	__u32 length; /* the length of the IP packet */
	__u32 left;   /* the length of the IP packet from the TCP header on */
};

/*
 * Reads the headers before TCP or UDP, and the ports. header is the least size of the TCP or UDP header. Returns false for a frame that
 * is not usual for the entry.
 */
static __always_inline bool read_usual_frame(struct segment *s, void *data, void *end, bool v6, __u32 header)
{
	struct ethernet *eth = data;
	struct ipv6hdr *six = data + LINK_HEADER;
	struct iphdr *four;

	s->l4 = LINK_HEADER;
	if ((void *)(eth + 1) > end)
		return false;
	if (LINK_HEADER && eth->type == bpf_htons(ETH_P_8021Q)) {
		six = data + LINK_HEADER + sizeof(struct vlan_tag);
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
__noinline __u32 has_no_cookie(context *ctx, __u32 v6, __u64 now)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct syn_options o = {};
	struct segment s;

	return read_segment(&s, data, end, v6) && read_usual_timestamps(&s, end, &o) &&
	       !cookie_valid_for(&s.ends, bpf_ntohl(s.tcp->seq), bpf_ntohl(s.tcp->ack_seq), &o, now);
}

/*
 * Refuses a segment with ACK and without SYN, RST or FIN, of no known flow, to a service with METHOD_HOST, if nothing
 * lets it pass. hash is the hash of its flow; slot counts refused segments. Returns whether it was refused. If not, nothing
 * has changed, and protect() decides.
 */
static __always_inline bool refuse_segment(context *ctx, __u32 v6, __u32 protection, __u32 slot, __u64 hash)
{
	__u64 now = coarse_time();

	if (!only_cookies(protection, now))
		return false;
	if (cookie_may_come(hash, now >> SLOT_SHIFT) && !has_no_cookie(ctx, v6, now))
		return false;
	count(DECISION(slot, VERDICT_PASS), frame_bytes(ctx, (void *)(long)ctx->data, (void *)(long)ctx->data_end));
	return true;
}

/* The result of decide_unknown() and decide_known(). The values are also in internal/compile/xdp/entry/protect.go. */
enum segment_outcome {
	SEGMENT_OTHER, /* protect() must decide */
	SEGMENT_OPEN,  /* it belongs to an open connection, and passes */
	SEGMENT_REFUSED,
};

/* The arguments of the generated entry in one number, because a BPF function takes five arguments. */
enum {
	SEGMENT_PROTECTION =
		8,         /* the number of its protection, of 8 bits; the 8 bits below are the states that are open */
	SEGMENT_SLOT = 32, /* the slot that counts refused segments */
};

/*
 * Decides a segment like that of refuse_segment(). The generated entry has found that the filter does not have its flow, but cannot
 * refuse the segment itself. hash is the hash of the flow. Returns an enum segment_outcome. A global function.
 */
__noinline __u32 decide_unknown(context *ctx, __u32 v6, __u64 hash, __u64 what)
{
	return refuse_segment(ctx, v6, (__u8)(what >> SEGMENT_PROTECTION), what >> SEGMENT_SLOT, hash) ? SEGMENT_REFUSED
												       : SEGMENT_OTHER;
}

/* Like decide_unknown(), but for a segment whose flow the filter may have. A global function. */
__noinline __u32 decide_known(context *ctx, __u32 v6, __u64 hash, __u64 what)
{
	__u32 answer = find_noted_flow(hash, what & ((1 << SEGMENT_PROTECTION) - 1));

	if (answer != FLOW_UNKNOWN)
		return answer == FLOW_OPEN ? SEGMENT_OPEN : SEGMENT_OTHER;
	return decide_unknown(ctx, v6, hash, what);
}

/*
 * Counts a decision with DECISION_PROTECTED, and calls protect() for its packet, which carries no question. Returns an
 * action. A global function.
 */
__noinline int protect_segment(context *ctx, __u32 v6, __u32 decision)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = {};
	struct segment s;
	__u32 header;

	if (!read_segment(&s, data, end, v6))
		return ACTION_PASS;
	header = s.tcp->doff * 4;
	p.proto = IPPROTO_TCP;
	p.family = s.ends.v6 & 1;
	p.src = s.ends.src;
	p.dst = s.ends.dst;
	p.port = s.ends.ports & 0xffff;
	p.sport = s.ends.ports >> 16;
	p.flags = tcp_flags(s.tcp);
	p.length = s.length;
	p.bytes = frame_bytes(ctx, data, end);
	p.l4 = s.l4;
	p.payload = header < sizeof(*s.tcp) || header > s.left ? 0 : s.l4 + header;
	p.end = s.l4 + s.left;
	count(decision, p.bytes);
	watch_traffic(ctx, decision);
	return protect(ctx, &p, decision);
}

/* Reads a datagram in a usual frame that carries no question. */
static __always_inline bool read_client_packet(context *ctx, __u32 v6, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct segment s;

	if (!read_usual_frame(&s, data, end, v6, sizeof(struct udphdr)))
		return false;
	p->proto = IPPROTO_UDP;
	p->family = v6 & 1;
	p->src = s.ends.src;
	p->dst = s.ends.dst;
	p->port = PORT_UDP + (s.ends.ports & 0xffff);
	p->sport = PORT_UDP + (s.ends.ports >> 16);
	p->icmp = ICMP_NONE;
	p->length = s.length;
	p->l4 = s.l4;
	p->payload = s.l4 + sizeof(struct udphdr);
	p->end = s.l4 + s.left;
	return true;
}

/* known_client() for a usual frame. A global function. */
__noinline __u32 known_in_frame(context *ctx, __u32 v6, __u32 number)
{
	struct packet p = {};

	return !read_client_packet(ctx, v6, &p) || known_client(ctx, &p, number);
}

/* goes_on() for a usual frame. A global function. */
__noinline __u32 goes_on_in_frame(context *ctx, __u32 v6, __u32 number)
{
	struct packet p = {};

	return read_client_packet(ctx, v6, &p) && goes_on(&p, number);
}

/* comes_again() for such a frame. A global function. */
__noinline __u32 again_in_frame(context *ctx, __u32 v6, __u32 number)
{
	struct packet p = {};

	return read_client_packet(ctx, v6, &p) && comes_again(&p, number);
}

/* Reads the offset of the UDP header in a usual frame, and the number of bytes behind that header. Returns false for any other frame. */
static __always_inline bool read_datagram(context *ctx, __u32 v6, __u32 *l4, __u32 *length)
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
__noinline __u32 proved_in_frame(context *ctx, __u32 v6, __u32 number)
{
	__u32 l4, length;

	return read_datagram(ctx, v6, &l4, &length) && proved_datagram(ctx, l4, length, number);
}

/* stray_datagram() for a usual frame. A global function. */
__noinline __u32 stray_in_frame(context *ctx, __u32 v6, __u32 number)
{
	__u32 l4, length;

	return !read_datagram(ctx, v6, &l4, &length) || stray_datagram(ctx, l4, length, number);
}
