/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Turns a DNS query into its answer, in place: an empty response with TC set. A real client repeats the query over TCP
 * (RFC 1035, 4.2.1; RFC 7766, 5); a forged source learns nothing. The answer is never longer than the query.
 *
 * The checksum of the query is not verified, here or earlier: that would take a loop over the whole query, and a client
 * discards an answer to a query that it did not send.
 */
#pragma once

#include "count.h"
#include "decision.h"
#include "dnsmessage.h"
#include "ends.h"
#include "packet.h"
#include "parse.h"
#include "verifier.h"
#include "sendback.h"

/* Whether any rule answers queries. Constant from load on; when false, make_reply() is removed. */
const volatile bool answers;

enum {
	REPLY_TTL = 64,            /* that of the kernel's own packets */
	REPLY_IPV4_FLAGS = 0x4000, /* DF: with it the ID has no meaning (RFC 6864, 4.1) */

	DNS_QR = 0x8000,
	DNS_TC = 0x0200,
	DNS_RA = 0x0080,
	DNS_ECHOED = 0x7910, /* OPCODE, RD, CD */

	OPT_SIZE = 1232, /* the UDP payload size that is announced to clients: DNS flag day 2020 */
	OPT_DO = 0x8000,
};

struct dns_header {
	__be16 id;
	__be16 flags;
	__be16 questions;
	__be16 answers;
	__be16 authorities;
	__be16 additionals;
};

/* The pseudo record of EDNS, RFC 6891, 6.1.2, without options. */
struct opt_record {
	__u8 name;
	__be16 type;
	__be16 size;
	__u8 extended_rcode;
	__u8 version;
	__be16 flags;
	__be16 length; /* of the options */
} __attribute__((packed));

/* The offset behind the question that begins at an offset of the frame, 0 when it is not complete. */
__noinline __u32 question_end(context *ctx, __u32 offset, __u32 end)
{
	void *frame_end = (void *)(long)ctx->data_end;
	__u32 at = offset;

	for (int i = 0; i <= DNS_LABELS_MAX; i++) {
		__u8 *label = (void *)(long)ctx->data + (at & 0x1ff);

		if (at >= end || at > 0x1ff || (void *)(label + 1) > frame_end || *label > DNS_LABEL_MAX)
			return 0;
		at = opaque(at + *label + 1);
		if (!*label)
			return at + DNS_QUESTION <= end ? at + DNS_QUESTION : 0;
	}
	return 0;
}

/* The sum of the 16-bit words of a part of the frame, as they are in memory, not folded (RFC 1071). */
__noinline __u64 sum_of(context *ctx, __u32 offset, __u32 length)
{
	void *end = (void *)(long)ctx->data_end, *at = (void *)(long)ctx->data + (offset & 0x7f);
	__u64 sum = 0;

	for (int i = 0; i < 96 && length >= 4 && at + 4 <= end; i++, at += 4, length -= 4)
		sum += *(__u32 *)at;
	if (length >= 2 && at + 2 <= end) {
		sum += *(__u16 *)at;
		at += 2;
		length -= 2;
	}
	if (length == 1 && at + 1 <= end)
		sum += bpf_htons(*(__u8 *)at << 8);
	return sum;
}

/*
 * The checksum of a sum of at most 2^16 words of 32 bits. The second line leaves at most 0x1fffe, since after a carry out of 32 bits the
 * lower bits are small. So the last line carries once.
 */
static __always_inline __u16 checksum(__u64 sum)
{
	sum = (__u32)sum + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

/* Swaps the MAC addresses of a frame that is neither to nor from a group. */
static __always_inline void swap_ethernet(struct ethernet *eth)
{
	__be32 *source = (void *)eth->source, *destination = (void *)eth->destination, client = *source;
	__be16 rest = eth->source[2];

	if (!LINK_HEADER)
		return;
	*source = *destination;
	eth->source[2] = eth->destination[2];
	*destination = client;
	eth->destination[2] = rest;
}

/* Like swap_ethernet(), but returns false for a frame to or from a group: a group can neither send an answer nor receive one. */
static __always_inline bool return_ethernet(struct ethernet *eth)
{
	if (is_with_group(eth))
		return false;
	swap_ethernet(eth);
	return true;
}

static __always_inline void return_ipv4(struct iphdr *ip, __u32 length)
{
	__be32 client = ip->saddr;

	ip->tos = 0;
	ip->tot_len = bpf_htons(sizeof(*ip) + length);
	ip->id = 0;
	ip->frag_off = bpf_htons(REPLY_IPV4_FLAGS);
	ip->ttl = REPLY_TTL;
	ip->check = 0;
	ip->saddr = ip->daddr;
	ip->daddr = client;
}

static __always_inline void return_ipv6(struct ipv6hdr *ip, __u32 length)
{
	struct in6_addr client = ip->saddr;

	*(__be32 *)ip = bpf_htonl(6 << 28); /* no traffic class, no flow label */
	ip->payload_len = bpf_htons(length);
	ip->hop_limit = REPLY_TTL;
	ip->saddr = ip->daddr;
	ip->daddr = client;
}

static __always_inline void return_udp(struct udphdr *udp, __u32 length)
{
	__be16 client = udp->source;

	udp->source = udp->dest;
	udp->dest = client;
	udp->len = bpf_htons(length);
	udp->check = 0;
}

/* Whether the query's first additional record is an OPT, which then is at opt: a query has no other records before it. */
static __always_inline bool has_opt(struct dns_header *dns, struct opt_record *opt)
{
	return dns->additionals && !opt->name && opt->type == bpf_htons(DNS_TYPE_OPT);
}

/* Writes the OPT record of the answer: RFC 6891, 6.1.1 requires one if the query has one. */
static __always_inline void return_opt(struct opt_record *opt)
{
	opt->size = bpf_htons(OPT_SIZE);
	opt->extended_rcode = 0;
	opt->version = 0;
	opt->flags &= bpf_htons(OPT_DO);
	opt->length = 0;
}

static __always_inline void return_dns(struct dns_header *dns, bool opt)
{
	dns->flags = (dns->flags & bpf_htons(DNS_ECHOED)) | bpf_htons(DNS_QR | DNS_TC | DNS_RA);
	dns->questions = bpf_htons(1);
	dns->answers = dns->authorities = 0;
	dns->additionals = opt ? bpf_htons(1) : 0;
}

/* Writes the answer into the DNS message at an offset of the frame. Returns its end, 0 when there is no answer. */
static __always_inline __u32 answer_message(context *ctx, __u32 offset, __u32 end)
{
	__u32 question = question_end(ctx, offset + sizeof(struct dns_header), end);
	void *data = (void *)(long)ctx->data, *frame_end = (void *)(long)ctx->data_end;
	struct opt_record *opt = data + (question & 0x1ff);
	struct dns_header *dns = data + offset;
	bool edns;

	if (!question || question > 0x1ff || (void *)(dns + 1) > frame_end)
		return 0;
	edns = question + sizeof(*opt) <= end && (void *)(opt + 1) <= frame_end && has_opt(dns, opt);
	if (edns)
		return_opt(opt);
	return_dns(dns, edns);
	return question + (edns ? sizeof(*opt) : 0);
}

/* Sets the checksums of a datagram of length bytes. `known` is the sum of its bytes from offset `here` on. */
static __always_inline void set_checksums_with(context *ctx, __u32 l3, __u32 l4, bool v6, __u32 length, __u32 here,
					       __u32 known)
{
	__u32 addresses = v6 ? 2 * sizeof(struct in6_addr) : 2 * sizeof(__be32);
	/* In both families the addresses are just before the L4 header, and are part of its checksum. */
	__u16 udp_sum = checksum(sum_of(ctx, l4 - addresses, addresses + here) + known + bpf_htons(IPPROTO_UDP) +
				 bpf_htons(length));
	__u16 ip_sum = checksum(v6 ? 0 : sum_of(ctx, l3, sizeof(struct iphdr)));
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct udphdr *udp = data + l4;
	struct iphdr *ip = data + l3;

	if ((void *)(udp + 1) > end)
		return;
	udp->check = udp_sum ?: 0xffff;
	if (!v6)
		ip->check = ip_sum;
}

/* Sets the checksums of a datagram of which no sum is known. */
static __always_inline void set_checksums(context *ctx, __u32 l3, __u32 l4, bool v6, __u32 length)
{
	set_checksums_with(ctx, l3, l4, v6, length, length, 0);
}

/*
 * Turns a well-formed DNS query into its answer. Returns the length of the frame, to which the caller cuts it, or 0
 * when there is no answer: for IPv4 options or IPv6 extension headers, for a multi-buffer frame, for a frame to or from a
 * group, for source port 0, and for IPv6 without the checksum of UDP (RFC 8200, 8.1). A global function, like ipv4_options().
 */
__noinline __u32 make_reply(context *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4, answered, length;
	struct udphdr *udp;
	bool v6;

	if (!p || frame_length(ctx) != end - data)
		return 0;
	v6 = p->family;
	l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	udp = data + l4;
	if (p->l4 != l4 || (void *)(udp + 1) > end || !udp->source || (v6 && !udp->check) || !return_ethernet(data))
		return 0;
	answered = answer_message(ctx, l4 + sizeof(*udp), p->end);
	if (!answered)
		return 0;
	length = answered - l4;
	if (v6)
		return_ipv6(data + l3, length);
	else
		return_ipv4(data + l3, length);
	return_udp(udp, length);
	set_checksums(ctx, l3, l4, v6, length);
	return answered;
}

/* Answers a DNS query that may be answered. Counts the answer, with the bytes sent, apart from the query. */
static __always_inline int answer(context *ctx, struct packet *p)
{
	__u32 length = may_answer(ctx, p) ? make_reply(ctx, p) : 0;

	if (!length || set_length(ctx, p->bytes, length))
		return ACTION_DROP;
	count(DECISION(SLOT_REPLIES, VERDICT_PASS), wire_length(ctx, length));
	return send_back(ctx);
}
