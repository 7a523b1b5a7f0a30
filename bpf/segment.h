/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Segments of no connection, refused out of the generated entry: most of a flood of ACKs. What protect.h does with them after
 * parsing them into struct packet is done here with what the frame has, and with less than half of the instructions.
 */
#pragma once

#include "clock.h"
#include "connlookup.h"
#include "cookie.h"
#include "count.h"
#include "parse.h"
#include "protect.h"
#include "protection.h"
#include "synack.h"

/* What the cookie of a segment is made of. */
struct claim {
	struct ends ends;
	struct syn_options options;
	__u32 seq;
	__u32 ack;
};

/* Options of a segment that has timestamps alone, as RFC 7323, appendix A, wants them to stand. */
struct usual_timestamps {
	__be32 begin;
	__be32 tsval;
	__be32 tsecr;
};

/*
 * Reads what is behind the addresses. left is the length of the TCP header and its payload. Returns false for what is not usual:
 * other options than timestamps, or a header of which a part is missing.
 */
static __always_inline bool read_claim(struct claim *c, struct tcphdr *tcp, void *end, __u32 left)
{
	struct usual_timestamps *t = (void *)(tcp + 1);

	c->ends.ports = (__u32)bpf_ntohs(tcp->source) << 16 | bpf_ntohs(tcp->dest);
	c->seq = bpf_ntohl(tcp->seq);
	c->ack = bpf_ntohl(tcp->ack_seq);
	c->options.timestamps = 0;
	if (tcp->doff == sizeof(*tcp) / 4)
		return true;
	if (tcp->doff != (sizeof(*tcp) + sizeof(*t)) / 4 || left < sizeof(*tcp) + sizeof(*t) || (void *)(t + 1) > end ||
	    t->begin != bpf_htonl(OPTION_WORD(OPTION_NOP, OPTION_NOP, TCP_OPTION_TIMESTAMPS, 10)))
		return false;
	c->options.timestamps = 1;
	c->options.tsecr = bpf_ntohl(t->tsecr);
	return true;
}

/* Reads a segment whose IP header the entry has found to be usual, and to have a TCP header behind it. */
static __always_inline bool read_segment(struct claim *c, void *ip, void *end, bool v6)
{
	struct ipv6hdr *six = ip;
	struct iphdr *four = ip;

	c->ends.v6 = v6;
	if (v6) {
		if ((void *)(six + 1) + sizeof(struct tcphdr) > end)
			return false;
		c->ends.src.hi = high_half(&six->saddr);
		c->ends.src.lo = low_half(&six->saddr);
		c->ends.dst.hi = high_half(&six->daddr);
		c->ends.dst.lo = low_half(&six->daddr);
		return read_claim(c, (void *)(six + 1), end, bpf_ntohs(six->payload_len));
	}
	if ((void *)(four + 1) + sizeof(struct tcphdr) > end)
		return false;
	c->ends.src.lo = bpf_ntohl(four->saddr);
	c->ends.dst.lo = bpf_ntohl(four->daddr);
	return read_claim(c, (void *)(four + 1), end, bpf_ntohs(four->tot_len) - sizeof(*four));
}

/* Whether nothing but a cookie could have a segment of no flow pass: cookies are on, and this CPU may not ask the kernel. */
static __always_inline bool only_cookies(__u32 protection, __u64 now)
{
	struct protection_state *s = bpf_map_lookup_elem(&protection_states, &protection);
	__u32 asker = ASK_STRANGER;
	__u64 *next = bpf_map_lookup_elem(&askers, &asker);

	return s && next && !is_resting(s, now) && surely_active(s, now) &&
	       exceeds_rate(next, now, ASK_INTERVAL, ASK_BURST);
}

/*
 * Refuses a segment with ACK and without SYN, RST or FIN, of no flow that is known, to a service with METHOD_HOST, if nothing lets it
 * pass. slot counts what is refused so. Returns whether it did; if not, nothing has changed, and protect() is to decide. A function
 * of its own to the verifier.
 */
__noinline __u32 refuse_segment(struct xdp_md *ctx, __u32 v6, __u32 protection, __u32 slot)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = data;
	void *ip = eth + 1;
	struct claim c = {};
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!only_cookies(protection, now) || (void *)(eth + 1) > end)
		return false;
	if (eth->type == bpf_htons(ETH_P_8021Q))
		ip += sizeof(struct vlan_tag);
	if (!read_segment(&c, ip, end, v6) || cookie_valid_for(&c.ends, c.seq, c.ack, &c.options, now))
		return false;
	count(DECISION(slot, VERDICT_PASS), end - data);
	return true;
}
