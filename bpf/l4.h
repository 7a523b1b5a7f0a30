/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The parsers of TCP, UDP, ICMP and ICMPv6, and the checks that go with them. */
#pragma once

#include "bits.h"
#include "check.h"
#include "packet.h"
#include "parse.h"
#include "verifier.h"

enum {
	TCP_FIN = 0x01,
	TCP_SYN = 0x02,
	TCP_RST = 0x04,
	TCP_PSH = 0x08,
	TCP_ACK = 0x10,
	TCP_URG = 0x20,
	TCP_ECE = 0x40,
	TCP_CWR = 0x80,
};

/* The start of every ICMP and ICMPv6 message. */
struct icmp_header {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};

/* Sets the start of the payload to `header` bytes after the start of the L4 header, or to 0 when the packet ends before that place. */
static __always_inline void payload_after(struct frame *f, __u32 header)
{
	__u32 at = f->packet.l4 + header;

	f->packet.payload = at <= f->packet.end ? at : 0;
}

#define FLAGS(f) (BIT(f) | BIT((f) | TCP_PSH))

/*
 * The combinations of flags that are valid, a bit for each value of the lower six: tcp_valid_flags in
 * net/netfilter/nf_conntrack_proto_tcp.c of the kernel. PSH, ECE and CWR may be set in all of them.
 */
static __always_inline bool tcp_flags_valid(__u32 flags)
{
	const __u64 valid = FLAGS(TCP_SYN) | FLAGS(TCP_SYN | TCP_URG) | FLAGS(TCP_SYN | TCP_ACK) | FLAGS(TCP_RST) |
			    FLAGS(TCP_RST | TCP_ACK) | FLAGS(TCP_FIN | TCP_ACK) | FLAGS(TCP_FIN | TCP_ACK | TCP_URG) |
			    FLAGS(TCP_ACK) | FLAGS(TCP_ACK | TCP_URG);

	return valid >> (flags & 0x3f) & 1;
}

/* The options of a SYN as Linux and Android send them, 20 bytes. */
struct usual_options {
	__be16 mss_begins;
	__be16 mss;
	__be32 timestamps_begin; /* behind SACK permitted */
	__be32 tsval;
	__be32 tsecr;
	__be16 wscale_begins; /* behind a NOP */
	__u8 wscale_size;
	__u8 wscale;
};

/* Whether a SYN has exactly these options. Most SYNs have them, and one comparison is cheaper than a loop over the options. */
static __always_inline bool are_usual(struct usual_options *o, __u32 length, void *end)
{
	return length == sizeof(*o) && (void *)(o + 1) <= end && o->mss_begins == bpf_htons(0x0204) &&
	       o->timestamps_begin == bpf_htonl(0x0402080a) && o->wscale_begins == bpf_htons(0x0103) &&
	       o->wscale_size == 3;
}

/* The checks that the options of a SYN at an offset of the frame fail, one bit each. A global function, like ipv4_options(). */
__noinline __u64 check_syn_options(context *ctx, __u32 offset, __u32 length)
{
	struct options o = {
		.first = (void *)(long)ctx->data + (offset & 0x7fff),
		.end = (void *)(long)ctx->data_end,
		.left = length,
	};
	__u64 failed = 0, mss = 0;

	if (are_usual((void *)o.first, length, o.end))
		return 0;
	for (int i = 0; i < MAX_OPTIONS; i++) {
		int size = option_size(&o);

		if (size == OPTIONS_BAD)
			failed |= BIT(CHECK_TCP_OPTIONS);
		if (size < 0)
			break;
		mss = opaque(mss | (o.first[o.at] == 2));
		next_option(&o, size);
	}
	return mss ? failed : failed | BIT(CHECK_SYN_NO_MSS);
}

/* Whether a rule asks for the maximum segment size. A constant to the verifier. */
const volatile bool reads_mss;

/* The value of the first MSS option in length bytes of options at an offset of the frame, or MSS_MISSING. A global function, like ipv4_options(). */
__noinline __u32 read_mss(context *ctx, __u32 offset, __u32 length)
{
	struct options o = {
		.first = (void *)(long)ctx->data + (offset & 0x7fff),
		.end = (void *)(long)ctx->data_end,
		.left = length,
	};

	for (int i = 0; i < MAX_OPTIONS; i++) {
		int size = option_size(&o);
		__u8 *option;

		if (size < 0)
			break;
		option = o.first + o.at;
		if (size == 4 && *option == 2 && (void *)(option + 4) <= o.end)
			return bpf_ntohs(*(__be16 *)(option + 2));
		next_option(&o, size);
	}
	return MSS_MISSING;
}

static __always_inline void check_syn(context *ctx, struct cursor *c, struct frame *f, struct tcphdr *tcp, __u32 header)
{
	fail_if(f->failed, CHECK_SYN_DATA, c->left > header);
	fail_if(f->failed, CHECK_SYN_LOW_PORT, bpf_ntohs(tcp->source) < 1024);
	fail_if(f->failed, CHECK_SYN_WINDOW_ZERO, !tcp->window);
	if (header < sizeof(*tcp) || header > c->left)
		return;
	if (header == sizeof(*tcp))
		fail_if(f->failed, CHECK_SYN_NO_MSS, true);
	else if (enabled(CHECK_TCP_OPTIONS) || enabled(CHECK_SYN_NO_MSS))
		f->failed |= check_syn_options(ctx, offset_of(c) + sizeof(*tcp), header - sizeof(*tcp));
}

/* The byte of the flags, CWR to FIN. */
static __always_inline __u8 tcp_flags(struct tcphdr *tcp)
{
	return ((__u8 *)tcp)[13];
}

static __always_inline void parse_tcp(context *ctx, struct cursor *c, struct frame *f)
{
	struct tcphdr *tcp = c->pos;
	__u32 header, flags;

	if (c->left < sizeof(*tcp) || (void *)(tcp + 1) > c->end) {
		f->failed |= cut_short(f->packet.fragment);
		return;
	}
	flags = tcp_flags(tcp);
	f->packet.port = bpf_ntohs(tcp->dest);
	f->packet.sport = bpf_ntohs(tcp->source);
	f->packet.flags = flags;

	header = tcp->doff * 4;
	if (reads_mss && (flags & TCP_SYN)) {
		bool options = header > sizeof(*tcp) && header <= c->left;

		f->packet.mss =
			options ? read_mss(ctx, offset_of(c) + sizeof(*tcp), header - sizeof(*tcp)) : MSS_MISSING;
	}
	payload_after(f, header < sizeof(*tcp) ? c->left + 1 : header);
	fail_if(f->failed, CHECK_TCP_HEADER, header < sizeof(*tcp));
	if (header > c->left) {
		if (f->packet.fragment == FRAGMENT_FIRST)
			fail_if(f->failed, CHECK_TINY_FRAGMENT, true);
		else
			fail_if(f->failed, CHECK_TCP_HEADER, true);
	}
	fail_if(f->failed, CHECK_TCP_FLAGS, !tcp_flags_valid(flags));
	fail_if(f->failed, CHECK_PORT_ZERO, !tcp->source || !tcp->dest);
	fail_if(f->failed, CHECK_ACK_ZERO, (flags & TCP_ACK) && !tcp->ack_seq);
	if ((flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		check_syn(ctx, c, f, tcp, header);
}

/* The UDP ports of services that answer anyone, with packets far larger than the requests (US-CERT TA14-017A). */
static __always_inline bool is_reflector(__u32 port)
{
	switch (port) {
	case 17:    /* quote of the day */
	case 19:    /* chargen */
	case 69:    /* TFTP */
	case 111:   /* portmap */
	case 137:   /* NetBIOS name service */
	case 161:   /* SNMP */
	case 389:   /* CLDAP */
	case 427:   /* SLP */
	case 520:   /* RIP */
	case 623:   /* IPMI */
	case 1434:  /* MS SQL browser */
	case 1900:  /* SSDP */
	case 3283:  /* Apple remote desktop */
	case 3702:  /* WS-Discovery */
	case 5093:  /* Sentinel */
	case 5353:  /* mDNS */
	case 5683:  /* CoAP */
	case 10001: /* Ubiquiti discovery */
	case 11211: /* memcached */
	case 37810: /* DHDiscover */
		return true;
	}
	return false;
}

static __always_inline void parse_udp(struct cursor *c, struct frame *f)
{
	struct udphdr *udp = c->pos;
	__u32 length;

	if (c->left < sizeof(*udp) || (void *)(udp + 1) > c->end) {
		f->failed |= cut_short(f->packet.fragment);
		return;
	}
	f->packet.port = PORT_UDP + bpf_ntohs(udp->dest);
	f->packet.sport = PORT_UDP + bpf_ntohs(udp->source);
	payload_after(f, sizeof(*udp));
	length = bpf_ntohs(udp->len);
	fail_if(f->failed, CHECK_UDP_LENGTH,
		length < sizeof(*udp) || (length > c->left && f->packet.fragment == FRAGMENT_NONE));
	fail_if(f->failed, CHECK_PORT_ZERO, !udp->dest);
	fail_if(f->failed, CHECK_UDP_SOURCE_ZERO, !udp->source);
	fail_if(f->failed, CHECK_UDP6_CHECKSUM, f->packet.family && !udp->check);
	if (enabled(CHECK_REFLECTOR_SOURCE))
		fail_if(f->failed, CHECK_REFLECTOR_SOURCE, is_reflector(opaque(bpf_ntohs(udp->source))));
}

/* Source quench, redirect, timestamp, information and address mask, RFC 6633 and RFC 6918. */
static __always_inline bool is_obsolete_icmp(__u32 type)
{
	return type == 4 || type == 5 || (type >= 13 && type <= 18);
}

static __always_inline void parse_icmp(struct cursor *c, struct frame *f)
{
	struct icmp_header *icmp = c->pos;
	bool v6 = f->packet.family;

	if (c->left < sizeof(*icmp) || (void *)(icmp + 1) > c->end) {
		f->failed |= cut_short(f->packet.fragment);
		return;
	}
	payload_after(f, sizeof(*icmp));
	f->packet.icmp = (v6 ? ICMP_V6 : 0) | icmp->type << 8 | icmp->code;
	fail_if(f->failed, CHECK_ICMP_TYPE, !v6 && is_obsolete_icmp(icmp->type));
	fail_if(f->failed, CHECK_ICMP_LARGE, icmp->type == (v6 ? 128 : 8) && f->packet.length > 1024);
	fail_if(f->failed, CHECK_ND_HOP_LIMIT, v6 && icmp->type >= 133 && icmp->type <= 137 && f->packet.ttl != 255);
}

static __always_inline void parse_l4(context *ctx, struct cursor *c, struct frame *f)
{
	__u32 proto = f->packet.proto;

	f->packet.l4 = offset_of(c);
	f->packet.end = f->packet.l4 + c->left;
	if (proto == IPPROTO_TCP)
		parse_tcp(ctx, c, f);
	else if (proto == IPPROTO_UDP)
		parse_udp(c, f);
	else if (proto == (f->packet.family ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		parse_icmp(c, f);
	else
		payload_after(f, 0);
}

/* Whether a segment may be the ACK that completes a handshake. */
static __always_inline bool may_begin(struct packet *p)
{
	return (p->flags & (TCP_SYN | TCP_RST | TCP_ACK)) == TCP_ACK;
}

/* Whether a segment carries data or a FIN. */
static __always_inline bool says_more(struct packet *p)
{
	return p->payload < p->end || (p->flags & TCP_FIN);
}

/* The TCP header of a packet that has one, or NULL when the linear part of the frame does not contain it. */
static __always_inline struct tcphdr *tcp_header(context *ctx, struct packet *p)
{
	struct tcphdr *tcp = (void *)(long)ctx->data + (p->l4 & 0x7fff);

	return (void *)(tcp + 1) > (void *)(long)ctx->data_end ? NULL : tcp;
}
