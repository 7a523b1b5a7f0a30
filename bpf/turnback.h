/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Turns a packet that a game server sends to a client, and that the client would not understand, into the client's answer to it, and gives the answer to
 * the server. gameanswer.h and raknetleaving.h say when.
 */
#pragma once

#include "challenge.h"
#include "dnsreply.h"
#include "skb.h"

enum { TURNED_MOST = 120 }; /* bytes behind the UDP header; with the header, a power of two */

/* Reads the addresses of a datagram with its UDP header at l4. Returns false if it has IP options or extension headers. */
static __always_inline bool datagram_ends(struct __sk_buff *skb, __u32 l4, struct address *from, struct address *to)
{
	__be64 six[4];
	__be32 four[2];

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (l4 != LINK_HEADER + sizeof(struct iphdr) ||
		    bpf_skb_load_bytes(skb, l4 - sizeof(four), four, sizeof(four)))
			return false;
		from->hi = to->hi = 0;
		from->lo = 0xffff00000000ULL | bpf_ntohl(four[0]);
		to->lo = 0xffff00000000ULL | bpf_ntohl(four[1]);
		return true;
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6) || l4 != LINK_HEADER + sizeof(struct ipv6hdr) ||
	    bpf_skb_load_bytes(skb, l4 - sizeof(six), six, sizeof(six)))
		return false;
	from->hi = bpf_be64_to_cpu(six[0]);
	from->lo = bpf_be64_to_cpu(six[1]);
	to->hi = bpf_be64_to_cpu(six[2]);
	to->lo = bpf_be64_to_cpu(six[3]);
	return true;
}

/* Reads the client of a datagram that a service sends, with its UDP header at l4. Returns false when datagram_ends() does. */
static __always_inline bool read_client(struct __sk_buff *skb, __u32 l4, struct service_client *c)
{
	__be16 ports[2];

	if (!datagram_ends(skb, l4, &c->service, &c->address) || bpf_skb_load_bytes(skb, l4, ports, sizeof(ports)))
		return false;
	c->ports = (opaque(bpf_ntohs(ports[1])) & 0xffff) | (opaque(bpf_ntohs(ports[0])) & 0xffff) << 16;
	return true;
}

/* The offset of the UDP header of a datagram that datagram_ends() can read. */
static __always_inline __u32 turned_l4(struct __sk_buff *skb)
{
	return LINK_HEADER + (skb->protocol == bpf_htons(ETH_P_IPV6) ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

/* A UDP header and its data, then zeros for the checksum. */
struct turned {
	__be16 sport;
	__be16 dport;
	__be16 length;
	__be16 check;
	__u8 data[TURNED_MOST];
};

/* Sets the IPv4 header of a datagram that is turned back, with length bytes behind that header. */
static __always_inline bool turn_ipv4(struct __sk_buff *skb, __u32 length)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, LINK_HEADER, &ip, sizeof(ip)))
		return false;
	return_ipv4(&ip, length);
	ip.check = checksum(bpf_csum_diff(NULL, 0, (void *)&ip, sizeof(ip), 0));
	return !bpf_skb_store_bytes(skb, LINK_HEADER, &ip, sizeof(ip), 0);
}

/* Like turn_ipv4(), for IPv6. Also sets the UDP checksum in m. */
static __always_inline bool turn_ipv6(struct __sk_buff *skb, struct turned *m, __u32 length)
{
	__be32 pseudo[2] = { bpf_htonl(length), bpf_htonl(IPPROTO_UDP) };
	struct ipv6hdr ip;
	__s64 sum;

	if (bpf_skb_load_bytes(skb, LINK_HEADER, &ip, sizeof(ip)))
		return false;
	return_ipv6(&ip, length);
	sum = bpf_csum_diff(NULL, 0, (void *)&ip.saddr, 2 * sizeof(ip.saddr), 0);
	sum = bpf_csum_diff(NULL, 0, pseudo, sizeof(pseudo), sum);
	sum = bpf_csum_diff(NULL, 0, (void *)m, sizeof(*m), sum);
	m->check = checksum(sum) ?: 0xffff;
	return !bpf_skb_store_bytes(skb, LINK_HEADER, &ip, sizeof(ip), 0);
}

/*
 * Replaces a leaving datagram with m, which has size bytes behind the UDP header, and gives it to this host as if the receiver had sent it. Returns a
 * verdict.
 */
static __always_inline int turn_back(struct __sk_buff *skb, struct turned *m, __u32 size)
{
	bool v6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	__u32 l4 = turned_l4(skb), length = sizeof(struct udphdr) + size;
	struct ethernet eth;

	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) || bpf_skb_load_bytes(skb, l4, m, sizeof(struct udphdr)) ||
	    bpf_skb_change_tail(skb, l4 + length, 0))
		return TCX_NEXT;
	return_udp((void *)m, length);
	if (v6 ? !turn_ipv6(skb, m, length) : !turn_ipv4(skb, length))
		return TCX_DROP;
#pragma unroll
	for (int i = 0; i < 3; i++) { /* not swap_ethernet(), whose words are not aligned on the stack */
		__be16 half = eth.source[i];

		eth.source[i] = eth.destination[i];
		eth.destination[i] = half;
	}
	if (LINK_HEADER && bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0))
		return TCX_DROP;
	skb->tc_index = REINJECTED;
	length = (opaque((__u64)length - 1) & (sizeof(*m) - 1)) + 1; /* with bounds that the verifier knows */
	if (bpf_skb_store_bytes(skb, l4, m, length, 0))
		return TCX_DROP;
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}
