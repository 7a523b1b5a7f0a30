/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What guards do on the way out: limit responses by destination, and note whom a service has answered over TCP. A
 * program of its own at the tc hook (TCX, Linux 6.6), which looks at nothing but what comes from a guarded port.
 */
#pragma once

/* enum tcx_action_base of linux/bpf.h, which is not in the headers of all systems that this is compiled on. */
enum {
	TCX_NEXT = -1,
	TCX_DROP = 2,
};

/* The EtherType, behind up to two VLAN tags, and where its header begins. Most tags are not in the data here. */
static __always_inline __be16 leaving_ethernet(struct __sk_buff *skb, __u32 *at)
{
	struct ethernet eth;
	struct vlan_tag tag;
	__be16 ethertype;

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
 * Returns where the L4 header begins, 0 when there is none. IP says 0 of a length that is too large for it, that of TCP
 * segments yet to be cut.
 */
static __always_inline __u32 leaving_ipv4(struct __sk_buff *skb, struct packet *p, __u32 at)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.frag_off & bpf_htons(0x1fff))
		return 0;
	p->proto = ip.protocol;
	p->length = ip.tot_len ? bpf_ntohs(ip.tot_len) : skb->len - at;
	p->src.lo = 0xffff00000000 | bpf_ntohl(ip.saddr);
	p->dst.lo = 0xffff00000000 | bpf_ntohl(ip.daddr);
	return at + ip.ihl * 4;
}

/* Of extension headers a server sends but one: that of a fragment. */
static __always_inline __u32 leaving_ipv6(struct __sk_buff *skb, struct packet *p, __u32 at)
{
	struct ipv6hdr ip;
	struct extension fragment;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return 0;
	p->family = 1;
	p->proto = ip.nexthdr;
	p->length = ip.payload_len ? bpf_ntohs(ip.payload_len) + sizeof(ip) : skb->len - at;
	p->src.hi = high_half(&ip.saddr);
	p->src.lo = low_half(&ip.saddr);
	p->dst.hi = high_half(&ip.daddr);
	p->dst.lo = low_half(&ip.daddr);
	at += sizeof(ip);
	if (p->proto != IPPROTO_FRAGMENT)
		return at;
	if (bpf_skb_load_bytes(skb, at, &fragment, sizeof(fragment)) || fragment.field & bpf_htons(0xfff8))
		return 0;
	p->proto = fragment.next;
	return at + sizeof(fragment);
}

/* Returns where the IP header begins. */
static __always_inline __u32 leaving_ip(struct __sk_buff *skb, struct packet *p)
{
	__u32 at = 0;
	__be16 ethertype = leaving_ethernet(skb, &at);

	if (ethertype == bpf_htons(ETH_P_IP))
		p->l4 = leaving_ipv4(skb, p, at);
	else if (ethertype == bpf_htons(ETH_P_IPV6))
		p->l4 = leaving_ipv6(skb, p, at);
	return at;
}

/*
 * Notes that a client is verified. Whoever is sent data in TCP has completed the handshake, and so has the address that
 * it says. Few answers write: only when half of the time has passed.
 */
static __always_inline void verify_client(struct packet *p, __u32 seconds)
{
	struct address client = client_of(p->dst, p->family);
	__u32 now = seconds_of(p), expiry = now + seconds;
	__u32 *known = bpf_map_lookup_elem(&verified, &client);

	if (!known || *known < now + seconds / 2)
		bpf_map_update_elem(&verified, &client, &expiry, BPF_ANY);
}

/* headers: octets of those of IP. A SYN may carry data before the handshake is over (RFC 7413), and a reset has nothing to do with one. */
static __always_inline void leaving_tcp(struct __sk_buff *skb, struct packet *p, __u32 headers)
{
	struct guard *guard;
	struct tcphdr tcp;

	if (bpf_skb_load_bytes(skb, p->l4, &tcp, sizeof(tcp)) || tcp.syn || tcp.rst)
		return;
	guard = guard_of(bpf_ntohs(tcp.source));
	if (guard && guard->verify && p->length > headers + tcp.doff * 4)
		verify_client(p, guard->verify);
}

/*
 * Whether a response must not leave. Of one in fragments only the first has the ports: it is charged for all of them,
 * as the UDP header says.
 */
static __always_inline bool leaving_udp(struct __sk_buff *skb, struct packet *p, __u32 headers)
{
	struct guard *guard;
	struct udphdr udp;
	__u32 length;

	if (bpf_skb_load_bytes(skb, p->l4, &udp, sizeof(udp)))
		return false;
	guard = guard_of(PORT_UDP + bpf_ntohs(udp.source));
	if (!guard || !(guard->flags & GUARD_LIMIT))
		return false;
	length = headers + bpf_ntohs(udp.len);
	if (p->length < length)
		p->length = length;
	if (!limit_exceeded(p, guard->limit))
		return false;
	count(DECISION(guard->slot, VERDICT_DROP), skb->len);
	return !(guard->flags & GUARD_OBSERVE);
}

SEC("tcx/egress")
int egress(struct __sk_buff *skb)
{
	struct packet p = {};
	__u32 ip = leaving_ip(skb, &p);

	if (!p.l4)
		return TCX_NEXT;
	if (p.proto == IPPROTO_TCP)
		leaving_tcp(skb, &p, p.l4 - ip);
	else if (p.proto == IPPROTO_UDP && leaving_udp(skb, &p, p.l4 - ip))
		return TCX_DROP;
	return TCX_NEXT;
}
