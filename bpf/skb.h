/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Parsers of the programs at the tc hook. A packet there is an skb, in pieces and without its outer VLAN tag. These
 * programs look at few packets, so the parsers read copies of the headers.
 */
#pragma once

#include "context.h"
#include "packet.h"
#include "parse.h"

/* The EtherType behind up to two VLAN tags, and the offset behind it. Most tags are not in the data here. */
static __always_inline __be16 skb_ethernet(struct __sk_buff *skb, __u32 *at)
{
	struct ethernet eth;
	struct vlan_tag tag;
	__be16 ethertype;

	if (!LINK_HEADER)
		return skb->protocol;
	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)))
		return 0;
	ethertype = eth.type;
	*at = sizeof(eth);
#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		if (!is_vlan(ethertype))
			break;
		if (bpf_skb_load_bytes(skb, *at, &tag, sizeof(tag)))
			return 0;
		ethertype = tag.ethertype;
		*at += sizeof(tag);
	}
	return ethertype;
}

/*
 * Returns the offset of the L4 header, 0 when there is none. The length in the IPv4 header is 0 if it does not fit, as
 * in TCP packets that the kernel has yet to segment.
 */
static __always_inline __u32 skb_ipv4(struct __sk_buff *skb, struct packet *p, __u32 at)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.frag_off & bpf_htons(0x1fff))
		return 0;
	p->proto = ip.protocol;
	p->length = ip.tot_len ? bpf_ntohs(ip.tot_len) : skb->len - at;
	p->fragment = ip.frag_off & bpf_htons(0x2000) ? FRAGMENT_FIRST : FRAGMENT_NONE;
	p->src.lo = 0xffff00000000 | bpf_ntohl(ip.saddr);
	p->dst.lo = 0xffff00000000 | bpf_ntohl(ip.daddr);
	return at + ip.ihl * 4;
}

/*
 * Skips the extension headers, from an offset on. Returns the offset of the L4 header, 0 when
 * there is none. A global function: the verifier assumes that the arguments may be null.
 */
__noinline __u32 skb_extensions(struct __sk_buff *skb, struct packet *p, __u32 at)
{
	struct extension ext;

	if (!p)
		return 0;
	for (int i = 0; i <= MAX_EXT_HEADERS; i++) {
		if (!is_extension(p->proto))
			return at;
		if (bpf_skb_load_bytes(skb, at, &ext, sizeof(ext)))
			return 0;
		at += (ext.length + 1) * 8;
		if (p->proto == IPPROTO_FRAGMENT) {
			at -= ext.length * 8; /* that byte is reserved */
			if (ext.field & bpf_htons(0xfff8))
				return 0;
			p->fragment = ext.field & bpf_htons(1) ? FRAGMENT_FIRST : FRAGMENT_NONE;
		}
		p->proto = ext.next;
	}
	return 0;
}

static __always_inline __u32 skb_ipv6(struct __sk_buff *skb, struct packet *p, __u32 at)
{
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return 0;
	p->family = 1;
	p->proto = ip.nexthdr;
	p->length = ip.payload_len ? bpf_ntohs(ip.payload_len) + sizeof(ip) : skb->len - at;
	p->src.hi = high_half(&ip.saddr);
	p->src.lo = low_half(&ip.saddr);
	p->dst.hi = high_half(&ip.daddr);
	p->dst.lo = low_half(&ip.daddr);
	return skb_extensions(skb, p, at + sizeof(ip));
}

/* Parses the headers up to the L4 header. Returns the offset of the IP header. */
static __always_inline __u32 skb_ip(struct __sk_buff *skb, struct packet *p)
{
	__u32 at = 0;
	__be16 ethertype = skb_ethernet(skb, &at);

	if (ethertype == bpf_htons(ETH_P_IP))
		p->l4 = skb_ipv4(skb, p, at);
	else if (ethertype == bpf_htons(ETH_P_IPV6))
		p->l4 = skb_ipv6(skb, p, at);
	return at;
}
