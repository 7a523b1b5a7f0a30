/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Copies of packets for user space, which reads frames as they are on the wire. A socket buffer has its outer VLAN tag
 * beside the frame, and on a device without a link layer it begins with the IP header. A copy has the tag in its place, and
 * an Ethernet header whose addresses are 0.
 */
#pragma once

#include "context.h"
#include "parse.h"

enum {
	COPY_BYTES = 128, /* the most bytes of a copy */
};

/*
 * Copies the packet from an offset on behind the first `at` bytes of the copy. Both are constants. Returns the length of the
 * copy, 0 when the packet has no bytes there.
 */
static __always_inline __u32 copy_rest(struct __sk_buff *skb, __u32 from, __u8 *to, __u32 at)
{
	__u32 last =
		skb->len - from -
		1; /* of the bytes to copy: from 0 on, so that the verifier knows the bounds before Linux 6.8, too */

	if (skb->len <= from)
		return 0;
	if (last > COPY_BYTES - 1 - at)
		last = COPY_BYTES - 1 - at;
	asm volatile("" : "+r"(last)); /* otherwise LLVM puts the addition before the comparison */
	return bpf_skb_load_bytes(skb, from, to + at, last + 1) ? 0 : at + last + 1;
}

/* Copies the start of a socket buffer. Sets the length of the whole frame. Returns the length of the copy, 0 when it cannot be read. */
static __always_inline __u32 copy_skb(struct __sk_buff *skb, __u8 *to, __u32 *bytes)
{
	struct ethernet *eth = (void *)to;
	__u16 *tag = (void *)&eth->type;

	*bytes = skb->len;
	if (!LINK_HEADER) {
		__builtin_memset(eth, 0, sizeof(*eth));
		eth->type = skb->protocol;
		*bytes += sizeof(*eth);
		return copy_rest(skb, 0, to, sizeof(*eth));
	}
	if (!skb->vlan_present)
		return copy_rest(skb, 0, to, 0);
	if (bpf_skb_load_bytes(skb, 0, to, sizeof(eth->destination) + sizeof(eth->source)))
		return 0;
	tag[0] = skb->vlan_proto;
	tag[1] = bpf_htons(skb->vlan_tci);
	*bytes += sizeof(struct vlan_tag);
	return copy_rest(skb, offsetof(struct ethernet, type), to,
			 offsetof(struct ethernet, type) + sizeof(struct vlan_tag));
}

#ifdef AT_TC

#define copy_frame copy_skb

#else

/* Copies the start of a frame. Sets the length of the whole frame. Returns the length of the copy, 0 when it cannot be read. */
static __always_inline __u32 copy_frame(context *ctx, __u8 *to, __u32 *bytes)
{
	__u32 copied;

	*bytes = frame_length(ctx);
	copied = *bytes < COPY_BYTES ? *bytes : COPY_BYTES;
	if (copied < 1)
		return 0;
	copied = known_length(copied, COPY_BYTES);
	return load_frame(ctx, 0, to, copied) ? 0 : copied;
}

#endif
