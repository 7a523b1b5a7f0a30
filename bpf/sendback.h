/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sends a packet that has become an answer. At tc the kernel may still have to complete its checksum. */
#pragma once

#include "context.h"
#include "parse.h"

#ifdef AT_TC

/* Whether the checksum at an offset of the frame is not complete: a device adds to it the sum of the bytes that it covers
 * (CHECKSUM_PARTIAL of include/linux/skbuff.h), as in packets of a veth. The helper does not change such a checksum
 * unless it is told that the pseudo header changes (inet_proto_csum_replace4() of net/core/utils.c).
 */
static __always_inline bool is_partial(context *ctx, __u32 at)
{
	__be16 before, after;

	if (bpf_skb_load_bytes(ctx, at, &before, sizeof(before)) ||
	    bpf_l4_csum_replace(ctx, at, 0, 1, sizeof(before)) || bpf_skb_load_bytes(ctx, at, &after, sizeof(after)))
		return false;
	if (before == after)
		return true;
	bpf_skb_store_bytes(ctx, at, &before, sizeof(before), 0);
	return false;
}

/* The sum of the pseudo header of a packet whose L4 header is at l4, without IP options or extension headers (RFC 9293, 3.1; RFC 8200, 8.1). */
static __always_inline __s64 pseudo_sum(context *ctx, __u32 l4, bool v6, __u8 proto)
{
	__be32 addresses[8], rest[2] = { bpf_htonl(ctx->len - l4), bpf_htonl(proto) };
	__s64 sum = bpf_csum_diff(NULL, 0, rest, sizeof(rest), 0);
	const __u32 four = 8, six = sizeof(addresses);

	if (v6 ? bpf_skb_load_bytes(ctx, l4 - six, addresses, six)
	       : bpf_skb_load_bytes(ctx, l4 - four, addresses, four))
		return -1;
	return v6 ? bpf_csum_diff(NULL, 0, addresses, six, sum) : bpf_csum_diff(NULL, 0, addresses, four, sum);
}

/*
 * Completes the checksum of an answer whose IP header is at l3: if a device is to complete it, it must have the sum of the
 * pseudo header. Returns whether that was possible. A global function.
 */
__noinline __u32 fit_checksum(context *ctx, __u32 l3)
{
	__u8 head[10];
	bool v6;
	__u32 l4, at;
	__u16 check;
	__s64 sum;

	if (bpf_skb_load_bytes(ctx, l3, head, sizeof(head)))
		return 0;
	v6 = head[0] >> 4 == 6;
	l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	head[0] = v6 ? head[6] : head[9];
	at = l4 + (head[0] == IPPROTO_TCP ? offsetof(struct tcphdr, check) : offsetof(struct udphdr, check));
	if (!is_partial(ctx, at))
		return 1;
	sum = pseudo_sum(ctx, l4, v6, head[0]);
	if (sum < 0)
		return 0;
	sum = (sum & 0xffff) + (sum >> 16);
	check = sum + (sum >> 16);
	return !bpf_skb_store_bytes(ctx, at, &check, sizeof(check), 0);
}

/* Sends the frame, which has become an answer, on its device. Returns an action. */
static __always_inline int send_back(context *ctx)
{
	if (!fit_checksum(ctx, ip_offset((void *)(long)ctx->data, (void *)(long)ctx->data_end)))
		return ACTION_DROP;
	ctx->tc_index = ANSWERED;
	return bpf_redirect(ctx->ifindex, 0);
}

#else

/* Sends the frame, which has become an answer, on its device. Returns an action. */
static __always_inline int send_back(context *ctx)
{
	return XDP_TX;
}

#endif
