/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * DNS queries over UDP (RFC 1035). internal/model/packet/dns.go defines the fields and the order of the tests; this code does
 * the same.
 */
#pragma once

#include "dnsmessage.h"
#include "names.h"
#include "packet.h"
#include "siphash.h"
#include "verifier.h"
#include "verify.h"
#include "zone.h"

/* The ports at which rules match DNS queries, as ranges. Constants to the verifier, which removes the parser when there are none. */
const volatile __u32 dns_ports;
const volatile struct {
	__u32 first;
	__u32 last;
} dns_port[DNS_PORTS_MAX];

/* Whether a rule tests if the client is verified. */
const volatile bool dns_verify;

/*
 * Records the labels of the name in a message of that length. Returns the offset behind the name, 0 when the name
 * breaks a limit. A global function, which the verifier checks once.
 */
__noinline __u32 dns_name(struct dns_message *m, __u32 length)
{
	__u32 at = DNS_NAME_AT;

	if (!m)
		return 0;
	for (__u32 i = 0; i <= DNS_LABELS_MAX; i++) {
		__u32 size;

		if (at >= length || at >= DNS_NAME_AT + DNS_NAME_MAX)
			return 0;
		size = m->text[at & (DNS_TEXT - 1)];
		if (!size) {
			m->labels = i;
			return at + 1;
		}
		if (size > DNS_LABEL_MAX)
			return 0;
		m->label[i] = at - DNS_NAME_AT;
		at = opaque(at + 1 + size);
	}
	return 0;
}

/* Whether n additional records can follow the question. Records the offset of the OPT record's data. */
static __always_inline bool dns_extras(struct dns_message *m, __u32 at, __u32 length, __u32 n)
{
	__u32 end;

	m->options = 0;
	if (!n)
		return at == length;
	if (at + DNS_RECORD > length)
		return false;
	if (m->text[at & (DNS_TEXT - 1)] || dns_word(m, at + 1) != DNS_TYPE_OPT)
		return true;
	m->options = at + DNS_RECORD;
	m->options_end = end = m->options + dns_word(m, at + 9);
	return n > 1 ? end + DNS_RECORD <= length : end == length;
}

/* The value of packet.dns for a message of that length. */
static __always_inline __u32 dns_class(struct dns_message *m, __u32 length)
{
	__u32 flags = dns_word(m, 10), extras = dns_word(m, 18), class, at;

	if (flags & 0x8000) /* QR */
		return DNS_RESPONSE;
	if (flags & 0x7800) /* opcode */
		return DNS_OTHER;
	if (dns_word(m, 12) != 1 || dns_word(m, 14) || dns_word(m, 16) || extras > DNS_EXTRAS_MAX)
		return DNS_MALFORMED;
	at = dns_name(m, length);
	if (!at || at + DNS_QUESTION > length || !dns_extras(m, at + DNS_QUESTION, length, extras))
		return DNS_MALFORMED;
	class = dns_word(m, at + 2);
	return class == 1 || class == 255 ? dns_word(m, at) : DNS_OTHER;
}

/* The value of packet.dns for a datagram of that length that is no fragment. */
__noinline __u32 dns_query(context *ctx, struct dns_message *m, __u32 l4, __u32 length)
{
	__u32 read = length < DNS_READ ? length : DNS_READ;

	if (!m)
		return DNS_MALFORMED;
	asm volatile("" : "+r"(read)); /* or LLVM tests another register than the one it passes */
	if (read < DNS_NAME_AT || read > DNS_READ || load_frame(ctx, l4, m->text, read) < 0)
		return DNS_MALFORMED;
	/* the UDP header of a joined packet has the length of all its datagrams */
	return segment_bytes(ctx) || dns_word(m, 4) == length ? dns_class(m, length) : DNS_MALFORMED;
}

/* Offset of the cookie option's data in the frame, and its length in the upper half; 0 without that option. */
__noinline __u64 dns_cookie(context *ctx, struct dns_message *m, __u32 l4)
{
	__u32 at;

	if (!m || !m->options)
		return 0;
	at = m->options;
	for (int i = 0; i < DNS_OPTIONS_MAX; i++) {
		__be16 option[2]; /* code, length of the data (RFC 6891, 6.1.2) */
		__u32 length;

		if (at + sizeof(option) > m->options_end || load_frame(ctx, l4 + at, option, sizeof(option)) < 0)
			return 0;
		length = bpf_ntohs(option[1]);
		at += sizeof(option);
		if (at + length > m->options_end)
			return 0;
		if (option[0] == bpf_htons(DNS_OPTION_COOKIE))
			return (__u64)length << 32 | (l4 + at);
		at = opaque(at + length);
	}
	return 0;
}

/* Whether rules match DNS queries at a port, given as a value of packet.port. */
static __always_inline bool is_dns_port(__u32 port)
{
#pragma unroll
	for (int i = 0; i < DNS_PORTS_MAX; i++)
		if (i < dns_ports && port >= dns_port[i].first && port <= dns_port[i].last)
			return true;
	return false;
}

static __always_inline void note_query(context *ctx, struct packet *p, struct dns_message *m)
{
	if (name_buckets)
		p->dns_names = name_sets(m);
	if (dns_verify) {
		__u64 cookie = verify_cookies ? dns_cookie(ctx, m, p->l4) : 0;

		/* These are not known yet. Before Linux 6.3 all fields must be written before the call: see parse(). */
		p->src_class = p->dst_class = p->src_dynamic = p->dst_dynamic = 0;
		p->verified = client_verified(ctx, p, cookie, cookie >> 32);
	}
	if (unanswered_bit && !p->verified && name_unanswered(p, m))
		p->dns_names |= unanswered_bit;
}

static __always_inline void no_dns(struct packet *p)
{
	p->dns = DNS_NONE;
	p->verified = p->dns_names = 0;
}

/* The length of the first datagram, with the UDP header: the kernel may have joined others to it, but each has a query of its own. */
static __always_inline __u32 first_datagram(context *ctx, struct packet *p)
{
	return joined_to(p) ? p->payload - p->l4 + segment_bytes(ctx) : p->end - p->l4;
}

static __always_inline void parse_dns(context *ctx, struct packet *p)
{
	struct dns_message *m;
	__u32 first = 0;

	if (!dns_ports || !is_dns_port(p->port))
		return;
	p->dns = DNS_MALFORMED;
	m = bpf_map_lookup_elem(&dns_message, &first);
	if (!m || p->fragment != FRAGMENT_NONE)
		return;
	p->dns = dns_query(ctx, m, p->l4, first_datagram(ctx, p));
	if (p->dns < DNS_RESPONSE)
		note_query(ctx, p, m);
}
