/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parsers. Each takes a cursor, checks the bounds first, writes its fields into the frame, advances the cursor, and returns
 * the type of the next header. internal/model/packet (Decode) defines these fields; tests compare both for every form of frame.
 */
#pragma once

#include "bits.h"
#include "check.h"
#include "context.h"
#include "packet.h"
#include "verifier.h"

enum {
	MAX_VLAN_TAGS = 2,
	MAX_EXT_HEADERS = 6,
	MAX_OPTIONS = 40, /* the most bytes of IPv4 or TCP options, and so also the most options */
};

/* The position of the parser in the frame. left is the number of bytes from pos to the end of the packet, by its IP header. */
struct cursor {
	void *pos;
	void *end;    /* the end of the frame's linear part */
	__u32 linear; /* bytes of the linear part */
	__u32 left;
};

/* The cursor's offset in the frame. The verifier loses track of a reloaded start pointer, so this counts back from the end. */
static __always_inline __u32 offset_of(struct cursor *c)
{
	return c->linear - (__u32)(c->end - c->pos);
}

/* The Ethernet header in 16-bit words: frames are aligned to 2 bytes. The kernel's struct ethhdr is packed, so the compiler reads single bytes. */
struct ethernet {
	__be16 destination[3];
	__be16 source[3];
	__be16 type;
};

struct vlan_tag {
	__be16 tci;
	__be16 ethertype;
};

struct extension {
	__u8 next;
	__u8 length;
	__be16 field; /* of a fragment header: offset and flag */
	__u8 rest[4];
};

static __always_inline bool is_vlan(__be16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

/* The offset of the IP header, behind the VLAN tags. */
static __always_inline __u32 ip_offset(void *data, void *end)
{
	__u32 at = LINK_HEADER;

	if (!at)
		return 0;
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		__be16 *type = data + at - sizeof(*type);

		if ((void *)(type + 1) > end || !is_vlan(*type))
			break;
		at += sizeof(struct vlan_tag);
	}
	return at;
}

/* Returns the EtherType, or 0 when the frame cannot be parsed further. */
static __always_inline __be16 parse_ethernet(context *ctx, struct cursor *c, struct frame *f)
{
	struct ethernet *eth = c->pos;
	__be16 ethertype;

	if ((void *)(eth + 1) > c->end)
		return 0;
	c->pos = eth + 1;
	fail_if(f->failed, CHECK_SOURCE_MAC, eth->source[0] & bpf_htons(0x0100)); /* the group bit */
	f->packet.vlan = has_tag_beside(ctx) ? vlan_beside(ctx) : VLAN_NONE;
	ethertype = eth->type;

#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_tag *tag = c->pos;

		if (!is_vlan(ethertype))
			return ethertype;
		if (i && has_tag_beside(ctx)) /* this is the third tag */
			break;
		if ((void *)(tag + 1) > c->end) {
			fail_if(f->failed, CHECK_TRUNCATED, true);
			return 0;
		}
		if (!i && !has_tag_beside(ctx))
			f->packet.vlan = bpf_ntohs(tag->tci) & 0xfff;
		ethertype = tag->ethertype;
		c->pos = tag + 1;
	}
	if (is_vlan(ethertype)) {
		fail_if(f->failed, CHECK_VLAN_DEPTH, true);
		return 0;
	}
	return ethertype;
}

/* The same for a packet without a link layer. */
static __always_inline __be16 parse_bare(context *ctx, struct frame *f)
{
	f->packet.vlan = VLAN_NONE;
	return bare_protocol(ctx);
}

/*
 * Bounds the packet by the length in its IP header. The frame may be longer, because of padding. When the linear part is
 * shorter, the rest may be in fragments of a multi-buffer frame; bpf_xdp_get_buff_len() returns the length with them.
 */
static __always_inline void limit_length(context *ctx, struct cursor *c, struct frame *f, __u32 length)
{
	__u32 linear = c->end - c->pos, rest;

	c->left = length;
	f->packet.length = length < 65535 ? length : 65535;
	if (length <= linear)
		return;
	rest = frame_length(ctx);
	f->packet.bytes = wire_length(ctx, rest);
	rest -= c->linear - linear;
	if (length > rest) {
		fail_if(f->failed, CHECK_TRUNCATED, true);
		c->left = rest;
	}
}

enum {
	OPTION_NOP = 1,
	OPTIONS_END = -1,
	OPTIONS_BAD = -2, /* a length that does not fit */
};

/* The options of IPv4 or TCP, which have the same form. The next option is `at` bytes after first, and `left` bytes of options remain. */
struct options {
	__u8 *first;
	void *end; /* the end of the frame's linear part */
	__u32 at;
	__u32 left;
};

/* The size of the next option, OPTIONS_END or OPTIONS_BAD. Kind 0 ends the options, kind 1 has one byte, others have a length. */
static __always_inline int option_size(struct options *o)
{
	__u8 *option = o->first + o->at, size;

	if (!o->left || o->at >= MAX_OPTIONS || (void *)(option + 1) > o->end || *option == 0)
		return OPTIONS_END;
	if (*option == OPTION_NOP)
		return 1;
	size = o->left >= 2 && (void *)(option + 2) <= o->end ? option[1] : 0;
	return size < 2 || size > o->left ? OPTIONS_BAD : size;
}

/*
 * Moves past an option of this size. opaque() makes both numbers unknown to the verifier. So each pass of the loop
 * reaches a state that the verifier has already checked, and it stops there (kernel/bpf/verifier.c, is_state_visited).
 */
static __always_inline void next_option(struct options *o, __u32 size)
{
	__u64 none = opaque(0);

	o->at += size + none;
	o->left += none - size;
}

/* The checks that an IPv4 option of this type fails, one bit each. */
static __always_inline __u64 check_ipv4_option(__u8 type)
{
	if (type == 131 || type == 137) /* loose, strict source route */
		return BIT(CHECK_SOURCE_ROUTE);
	/* type 148: router alert, which IGMP packets carry */
	return type == OPTION_NOP || type == 148 ? 0 : BIT(CHECK_IP_OPTIONS);
}

/*
 * The checks that the IPv4 options at an offset of the frame fail, one bit each. A global function: the verifier checks
 * it once, and not for each path to the call. Frames without options do not pay for the call.
 */
__noinline __u64 ipv4_options(context *ctx, __u32 offset, __u32 length)
{
	struct options o = {
		.first = (void *)(long)ctx->data + (offset & 0xff),
		.end = (void *)(long)ctx->data_end,
		.left = length,
	};
	__u64 failed = 0;

	for (int i = 0; i < MAX_OPTIONS; i++) {
		int size = option_size(&o);

		if (size == OPTIONS_BAD)
			return failed | BIT(CHECK_IP_OPTIONS);
		if (size < 0)
			break;
		failed |= check_ipv4_option(o.first[o.at]);
		next_option(&o, size);
	}
	return failed;
}

/* Whether the checksum of the IPv4 header at an offset of the frame is wrong. A global function, like ipv4_options(). */
__noinline int ipv4_checksum_wrong(context *ctx, __u32 offset, __u32 length)
{
	void *end = (void *)(long)ctx->data_end;
	__be16 *word = (void *)(long)ctx->data + (offset & 0xff);
	__u32 sum = 0;

	for (int i = 0; i < 30; i++) {
		if (i * 2 >= length || (void *)(word + i + 1) > end)
			break;
		sum += word[i];
	}
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum != 0xffff;
}

/* The checks that a fragment of either family fails. past is the offset of its end in the reassembled packet. */
static __always_inline __u64 check_fragment(__u32 proto, __u32 offset, __u32 past)
{
	__u64 failed = 0;

	if (past > 65535)
		failed |= BIT(CHECK_FRAGMENT_OVERFLOW);
	if (offset && offset < sizeof(struct tcphdr) && proto == IPPROTO_TCP)
		failed |= BIT(CHECK_TINY_FRAGMENT);
	return failed;
}

static __always_inline enum kind parse_ipv4(context *ctx, struct cursor *c, struct frame *f)
{
	struct iphdr *ip = c->pos;
	__u32 header, total, field, offset;

	if ((void *)(ip + 1) > c->end) {
		fail_if(f->failed, CHECK_TRUNCATED, true);
		return KIND_MALFORMED;
	}
	header = ip->ihl * 4;
	if (ip->version != 4 || header < sizeof(*ip)) {
		fail_if(f->failed, CHECK_IP_HEADER, true);
		return KIND_MALFORMED;
	}
	if (c->pos + header > c->end) {
		fail_if(f->failed, CHECK_TRUNCATED, true);
		return KIND_MALFORMED;
	}
	total = bpf_ntohs(ip->tot_len);
	if (total < header) {
		fail_if(f->failed, CHECK_IP_HEADER, true);
		return KIND_MALFORMED;
	}
	limit_length(ctx, c, f, total);
	f->packet.family = 0;
	f->packet.proto = ip->protocol;
	f->packet.ttl = ip->ttl;
	f->packet.dscp = ip->tos >> 2;
	f->packet.src.hi = f->packet.dst.hi = 0;
	f->packet.src.lo = 0xffff00000000 | bpf_ntohl(ip->saddr);
	f->packet.dst.lo = 0xffff00000000 | bpf_ntohl(ip->daddr);

	fail_if(f->failed, CHECK_TTL_ZERO, !ip->ttl);
	if (enabled(CHECK_IP_CHECKSUM))
		fail_if(f->failed, CHECK_IP_CHECKSUM, ipv4_checksum_wrong(ctx, offset_of(c), header));

	field = bpf_ntohs(ip->frag_off);
	offset = (field & 0x1fff) * 8;
	if (field & 0x3fff) {
		f->packet.fragment = offset ? FRAGMENT_LATER : FRAGMENT_FIRST;
		f->failed |= check_fragment(ip->protocol, offset, offset + total);
	}
	c->pos += sizeof(*ip);
	if (header > sizeof(*ip) && (enabled(CHECK_IP_OPTIONS) || enabled(CHECK_SOURCE_ROUTE)))
		f->failed |= ipv4_options(ctx, offset_of(c), header - sizeof(*ip));
	c->pos += header - sizeof(*ip);
	c->left -= header < c->left ? header : c->left;
	return KIND_IP;
}

/* Whether a header is an extension header. AH does not count as one, as in IPv4: IPsec checks the content behind AH, and netfilter stops there too. */
static __always_inline bool is_extension(__u32 proto)
{
	return proto == IPPROTO_HOPOPTS || proto == IPPROTO_ROUTING || proto == IPPROTO_FRAGMENT ||
	       proto == IPPROTO_DSTOPTS;
}

/* The check that fails when a header is cut short. In a first fragment, the next fragment may have the rest. Otherwise the rest is missing. */
static __always_inline __u64 cut_short(__u32 fragment)
{
	return fragment == FRAGMENT_FIRST ? BIT(CHECK_TINY_FRAGMENT) : BIT(CHECK_TRUNCATED);
}

/* The state of the parser of extension headers. */
struct chain {
	__u64 failed;
	__u32 proto;
	__u32 fragment;
};

/*
 * Parses a fragment header. beyond is the number of bytes behind it in the packet. Returns false for a later fragment,
 * which has no L4 header.
 */
static __always_inline bool parse_fragment(struct chain *chain, struct extension *ext, __u32 beyond)
{
	__u32 field = bpf_ntohs(ext->field), offset = field & 0xfff8;

	if (!(field & 0xfff9)) {
		chain->fragment = FRAGMENT_NONE;
		chain->failed |= BIT(CHECK_ATOMIC_FRAGMENT);
		return true;
	}
	chain->fragment = offset ? FRAGMENT_LATER : FRAGMENT_FIRST;
	chain->failed |= check_fragment(ext->next, offset, offset + beyond);
	if (offset)
		chain->proto = ext->next;
	return !offset;
}

/*
 * Parses the extension headers that begin at an offset of the frame. claimed is the payload length in the IPv6 header, left is the
 * number of bytes that are present. Returns the length of the extension headers, or -1 when no L4 header follows. A global function.
 */
__noinline int extensions(context *ctx, struct chain *chain, __u32 offset, __u32 claimed, __u32 left)
{
	void *end = (void *)(long)ctx->data_end;
	__u32 skipped = 0, fragments = 0;

	if (!chain)
		return -1;
	for (int i = 0; i <= MAX_EXT_HEADERS; i++) {
		struct extension *ext = (void *)(long)ctx->data + (offset & 0xff) + (skipped & 0x3fff);
		__u32 length, next = chain->proto;

		if (!is_extension(next))
			return skipped;
		if (i == MAX_EXT_HEADERS) {
			chain->failed |= BIT(CHECK_EXT_HEADERS);
			return -1;
		}
		if (skipped + sizeof(*ext) > left || (void *)(ext + 1) > end) {
			chain->failed |= cut_short(chain->fragment);
			return -1;
		}
		length = (ext->length + 1) * 8;
		if (next == IPPROTO_HOPOPTS && i)
			chain->failed |= BIT(CHECK_EXT_ORDER);
		if (next == IPPROTO_ROUTING && !(ext->field & bpf_htons(0xff00)))
			chain->failed |= BIT(CHECK_SOURCE_ROUTE);
		if (next == IPPROTO_FRAGMENT) {
			length = sizeof(*ext);
			if (fragments)
				chain->failed |= BIT(CHECK_EXT_ORDER);
			fragments = 1;
			if (!parse_fragment(chain, ext, claimed - skipped - length))
				return -1;
		}
		skipped = opaque(skipped + length);
		if (skipped > left || skipped > 0x3fff) {
			chain->failed |= cut_short(chain->fragment);
			return -1;
		}
		chain->proto = ext->next;
	}
	return -1;
}

/* Moves the cursor to the L4 header. Returns false when there is none. */
static __always_inline bool parse_extensions(context *ctx, struct cursor *c, struct frame *f, __u32 claimed)
{
	struct chain chain = { .proto = f->packet.proto, .fragment = FRAGMENT_NONE };
	int skipped;

	if (!is_extension(f->packet.proto))
		return true;
	skipped = extensions(ctx, &chain, offset_of(c), claimed, c->left);
	f->failed |= chain.failed;
	f->packet.proto = chain.proto;
	f->packet.fragment = chain.fragment;
	if (skipped < 0)
		return false;
	c->pos += skipped & 0x3fff;
	c->left -= skipped;
	return true;
}

static __always_inline __u64 high_half(struct in6_addr *a)
{
	return (__u64)bpf_ntohl(a->in6_u.u6_addr32[0]) << 32 | bpf_ntohl(a->in6_u.u6_addr32[1]);
}

static __always_inline __u64 low_half(struct in6_addr *a)
{
	return (__u64)bpf_ntohl(a->in6_u.u6_addr32[2]) << 32 | bpf_ntohl(a->in6_u.u6_addr32[3]);
}

/* Parses an IPv6 header, and sets claimed to its payload length. */
static __always_inline enum kind parse_ipv6(context *ctx, struct cursor *c, struct frame *f, __u32 *claimed)
{
	struct ipv6hdr *ip = c->pos;

	if ((void *)(ip + 1) > c->end) {
		fail_if(f->failed, CHECK_TRUNCATED, true);
		return KIND_MALFORMED;
	}
	if (ip->version != 6) {
		fail_if(f->failed, CHECK_IP_HEADER, true);
		return KIND_MALFORMED;
	}
	*claimed = bpf_ntohs(ip->payload_len);
	limit_length(ctx, c, f, *claimed + sizeof(*ip));
	f->packet.family = 1;
	f->packet.proto = ip->nexthdr;
	f->packet.ttl = ip->hop_limit;
	f->packet.dscp = (bpf_ntohs(*(__be16 *)ip) >> 6) & 0x3f;
	f->packet.src.hi = high_half(&ip->saddr);
	f->packet.src.lo = low_half(&ip->saddr);
	f->packet.dst.hi = high_half(&ip->daddr);
	f->packet.dst.lo = low_half(&ip->daddr);

	fail_if(f->failed, CHECK_TTL_ZERO, !ip->hop_limit);
	c->pos = ip + 1;
	c->left -= sizeof(*ip);
	return KIND_IP;
}
