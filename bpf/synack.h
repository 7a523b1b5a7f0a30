/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The options of SYNs, and the SYN-ACK that replaces a SYN in its frame. The SYN-ACK is written anew behind the VLAN
 * tags, without IP options and extension headers, and has no option that the SYN lacked. So it is never longer.
 *
 * The checksum of the SYN is not verified: many virtual devices hand on frames with a partial checksum, and a client
 * discards a SYN-ACK to a SYN that it did not send.
 */
#pragma once

#include "cookie.h"
#include "l4.h"
#include "packet.h"
#include "parse.h"
#include "dnsreply.h"
#include "verifier.h"

enum {
	TCP_OPTION_MSS = 2,
	TCP_OPTION_WSCALE = 3,
	TCP_OPTION_SACK = 4,
	TCP_OPTION_TIMESTAMPS = 8,
	TCP_OPTION_MD5 = 19,
	TCP_OPTION_AO = 29,
	TCP_WSCALE_MAX = 14, /* a larger value counts as this: RFC 7323, 2.3 */
	SYN_ACK_MAX = 40,    /* bytes of TCP header */
};

#define OPTION_WORD(a, b, c, d) ((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* The fields of a SYN-ACK. */
struct syn_ack {
	struct syn_options options;
	__u32 seq;
	__u32 ack;
	__u32 window;
};

static __always_inline __u32 read_word(__u8 *at)
{
	return (__u32)at[0] << 24 | (__u32)at[1] << 16 | (__u32)at[2] << 8 | at[3];
}

/* Records an option of this size, which is complete. */
static __always_inline void note_option(struct syn_options *o, __u8 *option, int size, void *end)
{
	switch (*option) {
	case TCP_OPTION_MSS:
		if (size == 4 && (void *)(option + 4) <= end)
			o->mss = option[2] << 8 | option[3];
		break;
	case TCP_OPTION_WSCALE:
		if (size == 3 && (void *)(option + 3) <= end)
			o->wscale = option[2] < TCP_WSCALE_MAX ? option[2] : TCP_WSCALE_MAX;
		break;
	case TCP_OPTION_SACK:
		if (size == 2)
			o->sack = 1;
		break;
	case TCP_OPTION_MD5:
	case TCP_OPTION_AO:
		o->authenticated = 1;
		break;
	case TCP_OPTION_TIMESTAMPS:
		if (size == 10 && (void *)(option + 10) <= end) {
			o->timestamps = 1;
			o->tsval = read_word(option + 2);
			o->tsecr = read_word(option + 6);
		}
	}
}

static __always_inline void read_usual(struct usual_options *from, struct syn_options *o)
{
	o->mss = bpf_ntohs(from->mss);
	o->wscale = from->wscale < TCP_WSCALE_MAX ? from->wscale : TCP_WSCALE_MAX;
	o->sack = o->timestamps = 1;
	o->tsval = bpf_ntohl(from->tsval);
	o->tsecr = bpf_ntohl(from->tsecr);
}

/*
 * Reads the options of a TCP header. Like the kernel, it ignores the options behind a malformed one. A global function,
 * like ipv4_options(): the verifier assumes that the arguments may be null. Always returns 0.
 */
__noinline __u32 read_options(context *ctx, struct packet *p, struct syn_options *o)
{
	struct options left = { .end = (void *)(long)ctx->data_end };

	if (!p || !o)
		return 0;
	__builtin_memset(o, 0, sizeof(*o));
	o->wscale = WSCALE_NONE;
	left.first = (void *)(long)ctx->data + (p->l4 & 0x7fff) + sizeof(struct tcphdr);
	left.left = p->payload - p->l4 - sizeof(struct tcphdr);
	if (are_usual((void *)left.first, left.left, left.end)) {
		read_usual((void *)left.first, o);
		return 0;
	}
	for (int i = 0; i < MAX_OPTIONS; i++) {
		int size = option_size(&left);

		if (size < 0)
			break;
		note_option(o, left.first + left.at, size, left.end);
		next_option(&left, size);
	}
	return 0;
}

/*
 * Reads the timestamps of a packet that is no SYN, if its options have the layout of RFC 7323, appendix A, as most
 * have. Returns whether they have.
 */
static __always_inline bool read_timestamps(context *ctx, struct packet *p, struct syn_options *o)
{
	__be32 *word = (void *)(long)ctx->data + (p->l4 & 0x7fff) + sizeof(struct tcphdr);
	__u32 size = p->payload - p->l4 - sizeof(struct tcphdr);

	if (!size)
		return true;
	if (size != 12 || (void *)(word + 3) > (void *)(long)ctx->data_end ||
	    *word != bpf_htonl(OPTION_WORD(OPTION_NOP, OPTION_NOP, TCP_OPTION_TIMESTAMPS, 10)))
		return false;
	o->timestamps = 1;
	o->tsval = bpf_ntohl(word[1]);
	o->tsecr = bpf_ntohl(word[2]);
	return true;
}

/* A position to write 32-bit words to, and the sum of the words written, as they are in memory (RFC 1071). */
struct writer {
	__be32 *at;
	void *end;
	bool roomy; /* a constant: there is space for all that is written */
	__u64 sum;
};

static __always_inline void put_word(struct writer *w, __u32 word)
{
	if (w->roomy || (void *)(w->at + 1) <= w->end)
		*w->at = bpf_htonl(word);
	w->at++;
	w->sum += bpf_htonl(word);
}

/* Swaps the addresses of an IP header, which are next to each other. They stay in network byte order. */
static __always_inline void swap_addresses(struct writer *w, struct iphdr *ip, bool v6)
{
	__be32 *addresses = v6 ? (void *)&((struct ipv6hdr *)ip)->saddr : (void *)&ip->saddr;
	const __u32 words = v6 ? 4 : 1;

#pragma unroll
	for (__u32 i = 0; i < words; i++) {
		__be32 client = addresses[i], service = addresses[words + i];

		addresses[i] = service;
		addresses[words + i] = client;
		w->sum += (__u64)client + service;
	}
	w->at += 2 * words;
}

/* The size of the TCP options in bytes. Each option is padded to 32-bit words, for which the SYN's own had space too. */
static __always_inline __u32 options_size(struct syn_options *o)
{
	__u32 size = o->mss ? 4 : 0;

	size += o->timestamps ? 12 : o->sack ? 4 : 0;
	return size + (o->wscale != WSCALE_NONE ? 4 : 0);
}

static __always_inline void put_options(struct writer *w, struct syn_options *o)
{
	if (o->mss)
		put_word(w, OPTION_WORD(TCP_OPTION_MSS, 4, 0, 0) | o->mss);
	if (o->timestamps) {
		put_word(w, o->sack ? OPTION_WORD(TCP_OPTION_SACK, 2, TCP_OPTION_TIMESTAMPS, 10)
				    : OPTION_WORD(OPTION_NOP, OPTION_NOP, TCP_OPTION_TIMESTAMPS, 10));
		put_word(w, o->tsval);
		put_word(w, o->tsecr);
	} else if (o->sack) {
		put_word(w, OPTION_WORD(OPTION_NOP, OPTION_NOP, TCP_OPTION_SACK, 2));
	}
	if (o->wscale != WSCALE_NONE)
		put_word(w, OPTION_WORD(OPTION_NOP, TCP_OPTION_WSCALE, 3, 0) | o->wscale);
}

/* Writes the IP header up to the addresses. Returns the sum of the words so far for IPv4, 0 for IPv6. */
static __always_inline __u64 put_ip(struct writer *w, bool v6, __u32 tcp)
{
	if (v6) {
		put_word(w, 6 << 28); /* no traffic class, no flow label */
		put_word(w, tcp << 16 | IPPROTO_TCP << 8 | REPLY_TTL);
		return 0;
	}
	put_word(w, 0x45 << 24 | (sizeof(struct iphdr) + tcp));
	put_word(w, REPLY_IPV4_FLAGS); /* and ID 0 */
	put_word(w, REPLY_TTL << 24 | IPPROTO_TCP << 16);
	return w->sum;
}

/* Writes the TCP header, and adds the pseudo header to its sum. */
static __always_inline void put_tcp(struct writer *w, struct packet *p, struct syn_ack *a, __u32 size)
{
	__u32 flags = TCP_SYN | TCP_ACK | (a->options.ecn ? TCP_ECE : 0);

	put_word(w, p->port << 16 | (p->sport & 0xffff));
	put_word(w, a->seq);
	put_word(w, a->ack);
	put_word(w, size / 4 << 28 | flags << 16 | (a->window & 0xffff));
	w->at++; /* the checksum, set when all is summed up */
	put_options(w, &a->options);
	w->sum += bpf_htonl(IPPROTO_TCP) + (__u64)bpf_htonl(size);
}

/*
 * Writes the headers from IP on, and their checksums. size is that of the TCP header in bytes. ip and tcp are arguments
 * beside the writer: after its comparisons with the end, the verifier forgets that their first bytes are in the frame.
 */
static __always_inline void put_syn_ack(struct writer *w, struct iphdr *ip, struct tcphdr *tcp, struct packet *p,
					struct syn_ack *a, bool v6, __u32 size)
{
	__u64 ip_sum = put_ip(w, v6, size);

	w->sum = 0;
	swap_addresses(w, ip, v6);
	ip_sum += w->sum;
	put_tcp(w, p, a, size);
	*(__u32 *)&tcp->check = checksum(w->sum); /* and the urgent pointer, 0 */
	if (!v6)
		ip->check = checksum(ip_sum);
}

/*
 * Replaces the headers from IP on by those of a SYN-ACK. Returns the length of the frame, 0 when there is no answer.
 * The verifier must see that every write is inside the frame: if the frame has space for the longest headers (roomy),
 * one comparison is enough. v6 and roomy are constants.
 */
static __always_inline __u32 write_syn_ack(void *data, void *end, struct packet *p, struct syn_ack *a, bool v6,
					   bool roomy)
{
	__u32 l3 = ip_offset(data, end), l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	__u32 size = sizeof(struct tcphdr) + options_size(&a->options);
	struct tcphdr *tcp = data + l4;
	struct iphdr *ip = data + l3;
	struct writer w = { .at = (void *)ip, .end = end, .roomy = roomy };

	if ((void *)tcp + (roomy ? SYN_ACK_MAX : sizeof(*tcp)) > end || l4 + size > (__u64)(end - data) ||
	    !return_ethernet(data))
		return 0;
	put_syn_ack(&w, ip, tcp, p, a, v6, size);
	return l4 + size;
}

/*
 * Turns a SYN into its SYN-ACK. Returns the length of the frame, to which the caller cuts it, or 0 when there is no answer:
 * for a frame to a group, and for one whose headers the driver has put into several buffers. A global function, like
 * ipv4_options().
 */
__noinline __u32 make_syn_ack(context *ctx, struct packet *p, struct syn_ack *a)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	bool roomy;

	if (!p || !a)
		return 0;
	roomy = p->l4 + SYN_ACK_MAX <= (__u64)(end - data); /* what is sent begins there or before */
	if (p->family)
		return roomy ? write_syn_ack(data, end, p, a, true, true) : write_syn_ack(data, end, p, a, true, false);
	return roomy ? write_syn_ack(data, end, p, a, false, true) : write_syn_ack(data, end, p, a, false, false);
}
