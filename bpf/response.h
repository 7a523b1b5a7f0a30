/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Learns from leaving DNS responses which names are answered and which zones are flooded (zone.h): RFC 1035, RFC 2308. If a response has an answer or is
 * a referral, its name is noted. A negative response (NXDOMAIN, SERVFAIL or NODATA) for a name that is not noted is charged to its zone. The zone is the
 * owner of the SOA in the authority section (RFC 2308, 2.1 and 2.2). SERVFAIL has no SOA: it is charged to domains above the name.
 */
#pragma once

#include "dns.h"
#include "dnsmessage.h"
#include "packet.h"
#include "siphash.h"
#include "verifier.h"
#include "verify.h"
#include "zone.h"

enum {
	DNS_TYPE_NS = 2,
	DNS_TYPE_SOA = 6,
	DNS_TYPE_AAAA = 28,
	DNS_TYPE_HTTPS = 65, /* RFC 9460 */
	DNS_RCODE = 0x000f,  /* a mask of the flags */
	DNS_NOERROR = 0,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,

	/* Results of authority() other than a number of labels: */
	AUTHORITY_NONE = 256,     /* there is no SOA */
	AUTHORITY_REFERRAL = 257, /* there is no SOA, but an NS record */

	AUTHORITIES_MAX =
		8, /* records that are searched for the SOA: with DNSSEC, NSEC3 and RRSIG may stand before it */
	SERVFAIL_DEPTH_MOST = 5, /* labels of the domains above a name to which SERVFAIL is charged */
	RESPONSE_READ =
		512, /* bytes of a response with the UDP header, the power of two that dns_message has space for */
};

/* The data of a response that struct dns_message does not have. Offsets count from the UDP header. */
struct response {
	struct address to;
	__u32 family;
	__u32 port;   /* from which it leaves, as in struct packet */
	__u32 l4;     /* where the UDP header begins in the frame */
	__u32 length; /* bytes of the datagram; after read_response(), the bytes that were read */
	__u32 behind; /* offset behind the question */
	__u32 rcode;
	__u32 answers; /* records */
	__u32 authorities;
	__u32 qtype; /* the type that was asked for */
};

/* The response that leaves, on its way from guard_leaving() to note_response(). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct response);
} leaving_response SEC(".maps");

/* Keeps a response for note_response(): struct packet and the data of note_response() together exceed the stack. Returns false if it cannot. */
static __always_inline bool keep_response(struct packet *p, __u32 port, __u32 length)
{
	__u32 first = 0;
	struct response *r = bpf_map_lookup_elem(&leaving_response, &first);

	if (!r)
		return false;
	r->to = client_of(p->dst, p->family);
	r->family = p->family;
	r->port = port;
	r->l4 = p->l4;
	r->length = length;
	return true;
}

/* A name in a record. */
struct record_name {
	__u32 labels;
	__u32 behind; /* the offset behind the name in its record, 0 if it is not well-formed */
};

/*
 * Reads the name at an offset. It may end with a pointer to an earlier name (RFC 1035, 4.1.4). Only the number of labels matters. A global
 * function.
 */
__noinline int read_name(struct dns_message *m, __u32 at, __u32 length, struct record_name *n)
{
	__u32 labels = 0, behind = 0;

	if (!m || !n)
		return 0;
	n->labels = n->behind = 0;
	for (__u32 i = 0; i <= DNS_LABELS_MAX; i++) {
		__u32 size;

		if (at < sizeof(struct udphdr) || at + 1 >= length || length > RESPONSE_READ)
			return 0;
		size = m->text[at & (DNS_TEXT - 1)];
		if (!size) {
			n->labels = labels;
			n->behind = behind ?: at + 1;
			return 0;
		}
		if (size >= 0xc0) {
			__u32 to = sizeof(struct udphdr) + (dns_word(m, at) & 0x3fff);

			behind = behind ?: at + 2;
			if (to >= at)
				return 0;
			at = opaque(to);
			continue;
		}
		if (size > DNS_LABEL_MAX)
			return 0;
		labels++;
		at = opaque(at + 1 + size);
	}
	return 0;
}

/* The number of labels of the owner of the SOA, 0 for the root; without a SOA, AUTHORITY_NONE or AUTHORITY_REFERRAL. A global function. */
__noinline __u32 authority(struct dns_message *m, struct response *r)
{
	__u32 at, records, length, found = AUTHORITY_NONE;
	struct record_name n = {};

	if (!m || !r)
		return AUTHORITY_NONE;
	at = r->behind;
	length = r->length;
	records = r->authorities;
	for (__u32 i = 0; i < AUTHORITIES_MAX; i++) {
		if (i >= records)
			break;
		read_name(m, at, length, &n);
		at = opaque(n.behind);
		if (!at || at + DNS_RECORD - 1 > length) /* type, class, TTL, length of the data */
			break;
		if (dns_word(m, at) == DNS_TYPE_SOA)
			return n.labels;
		if (dns_word(m, at) == DNS_TYPE_NS)
			found = AUTHORITY_REFERRAL;
		at = opaque(at + DNS_RECORD - 1 + dns_word(m, at + 8));
	}
	return found;
}

/* Reads a response. Returns false if the message is no response to a single question. A global function. */
__noinline __u32 read_response(struct __sk_buff *skb, struct dns_message *m, struct response *r)
{
	__u32 read, flags;

	if (!m || !r || r->length < DNS_NAME_AT + 1)
		return false;
	read = known_length(r->length < RESPONSE_READ ? r->length : RESPONSE_READ, RESPONSE_READ);
	if (bpf_skb_load_bytes(skb, r->l4, m->text, read))
		return false;
	flags = dns_word(m, 10);
	if (!(flags & 0x8000) || flags & 0x7800 || dns_word(m, 12) != 1)
		return false;
	r->behind = dns_name(m, read);
	if (!r->behind || r->behind + DNS_QUESTION > read)
		return false;
	m->name_end = r->behind;
	r->qtype = dns_word(m, r->behind);
	r->behind += DNS_QUESTION;
	r->length = read;
	r->rcode = flags & DNS_RCODE;
	r->answers = dns_word(m, 14);
	r->authorities = dns_word(m, 16);
	return true;
}

/* The hash of a number of labels of the name, from the last one on. A global function. */
__noinline __u64 domain_hash(struct dns_message *m, __u32 labels)
{
	if (!m)
		return 0;
	begin_name(m);
	hash_labels(m, 1, labels + 1);
	return hash_of(m->hash);
}

/* The slot that a new name takes: an empty one, or the name answered longest ago. Names that were not answered again are replaced first. */
static __always_inline __u32 spare_slot(struct answered_bucket *b, __u64 now)
{
	__u32 found = 0, most = 0;

#pragma nounroll
	for (__u32 i = 0; i < ANSWERED_SLOTS; i++) {
		__u64 word = read_once(&b->word[i]);
		__u32 spare = 1 + answered_age(word, now);

		if (!is_remembered(word, now))
			spare = 1 << 30;
		else if (!(word & ANSWERED_AGAIN))
			spare |= 1 << 20;
		if (spare > most) {
			most = spare;
			found = i;
		}
	}
	return found;
}

/*
 * Notes a name that was answered. New names of one domain of two labels are limited: if a domain answers for all names, anybody can make it answer
 * for any number of names. A global function.
 */
__noinline __u32 note_answered_name(struct dns_message *m, __u64 hash, __u64 now, __u32 limit)
{
	struct answered_bucket *b = answered_bucket(hash);
	__u64 time = now >> 32 & (BIT(ANSWERED_SEEN_BITS) - 1), word;
	__u32 at;

	if (!b || !m)
		return 0;
	at = answered_slot(b, hash, now);
	if (at < ANSWERED_SLOTS) {
		word = read_once(&b->word[at]);
		if (answered_age(word, now))
			b->word[at] = answered_tag(word) << ANSWERED_TAG_SHIFT | ANSWERED_AGAIN | time;
		return 0;
	}
	if (charge_name(m, domain_hash(m, ZONE_DEPTH_LEAST), limit))
		return 0;
	at = spare_slot(b, now);
	if (at < ANSWERED_SLOTS)
		b->word[at] = answered_tag(hash) << ANSWERED_TAG_SHIFT | time;
	return 0;
}

/* The place for a zone: its own place. Otherwise it takes the place of the flood that ended or ends first. */
static __always_inline __u32 zone_place(__u64 hash)
{
	__u32 found = hash & (ZONES - 1);
	__u64 least = ~0ULL;

#pragma nounroll
	for (__u32 i = 0; i < ZONE_PROBES; i++) {
		__u32 at = (hash + i) & (ZONES - 1);
		struct zone *z = bpf_map_lookup_elem(&flooded_zones, &at);
		__u64 until;

		if (!z)
			continue;
		until = read_once(&z->hash) == hash ? 0 : read_once(&z->until) + 1;
		if (until < least) {
			least = until;
			found = at;
		}
	}
	return found;
}

/* Notes that the zone with a hash and a number of labels is flooded. l4 is the offset of the response's UDP header. A global function. */
__noinline __u32 note_flooded_zone(struct __sk_buff *skb, struct dns_message *m, __u64 hash, __u32 labels, __u32 l4)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 at = zone_place(hash), from, length, size;
	struct zone *z = bpf_map_lookup_elem(&flooded_zones, &at);

	if (!z || !m || !labels || labels > m->labels)
		return 0;
	if (z->hash == hash && z->until > now + ZONE_TIME - ZONE_RENEW)
		return 0;
	if (z->hash != hash) {
		from = DNS_NAME_AT + m->label[(m->labels - labels) & DNS_LABELS_MAX];
		length = m->name_end - from;
		size = known_length(length < ZONE_NAME ? length : ZONE_NAME, ZONE_NAME);
		z->until = 0;
		z->hash = hash;
		z->depth = labels;
		z->length = length;
		if (bpf_skb_load_bytes(skb, l4 + from, z->name, size))
			return 0;
	}
	extend_flood(z, now);
	return 0;
}

/* Charges a response to the zone with this number of labels. Returns whether the zone is flooded now. A global function. */
__noinline __u32 charge_zone(struct __sk_buff *skb, struct dns_message *m, __u32 labels, __u32 l4, __u32 limit)
{
	__u64 hash = domain_hash(m, labels);

	if (!m || !charge_name(m, hash, limit))
		return false;
	note_flooded_zone(skb, m, hash, labels, l4);
	return true;
}

/*
 * Charges a response without a SOA to the domains above the name, until one is flooded. It begins with the domain of most labels. Each
 * next domain is charged half as often, because it has more names that belong to no flood. A global function.
 */
__noinline __u32 charge_domains(struct __sk_buff *skb, struct dns_message *m, __u32 l4, __u32 limit)
{
	__u32 draw = bpf_get_prandom_u32(), labels;

	if (!m)
		return 0;
	labels = m->labels - 1;
	if (labels > SERVFAIL_DEPTH_MOST)
		labels = SERVFAIL_DEPTH_MOST;
	for (__u32 i = 0; i <= SERVFAIL_DEPTH_MOST - ZONE_DEPTH_LEAST; i++, draw >>= 1) {
		if (labels - i < ZONE_DEPTH_LEAST || labels - i > SERVFAIL_DEPTH_MOST)
			break;
		if (charge_zone(skb, m, labels - i, l4, limit) || draw & 1)
			break;
	}
	return 0;
}

/* Whether the client of a response is verified by an answer over TCP. Its queries pass whatever their names are, so they are not evidence of a flood. */
static __always_inline bool goes_to_verified(struct response *r, __u64 now)
{
	__u32 *expiry = bpf_map_lookup_elem(&verified, &r->to);

	return expiry && *expiry > now / 1000000000;
}

/*
 * Whether a response is charged to a zone. Other codes, like REFUSED, say nothing about the name. Most names have only an IPv4 address, and clients ask for
 * AAAA and HTTPS at the same time. So NODATA for these types is usual.
 */
static __always_inline bool is_negative(struct response *r)
{
	if (r->rcode == DNS_NOERROR)
		return !r->answers && r->qtype != DNS_TYPE_AAAA && r->qtype != DNS_TYPE_HTTPS;
	return r->rcode == DNS_NXDOMAIN || r->rcode == DNS_SERVFAIL;
}

/* Notes the name of the response that leaves, or charges its zone. A global function. */
__noinline __u32 note_response(struct __sk_buff *skb)
{
	struct dns_message *m;
	__u32 first = 0, depth;
	struct response *r;
	struct guard *guard;
	__u64 now, hash;

	m = bpf_map_lookup_elem(&dns_message, &first);
	r = bpf_map_lookup_elem(&leaving_response, &first);
	if (!m || !r || !read_response(skb, m, r) || m->labels <= ZONE_DEPTH_LEAST)
		return 0;
	guard = guard_of(r->port);
	if (!guard)
		return 0;
	now = bpf_ktime_get_ns();
	hash = domain_hash(m, m->labels);
	depth = r->answers ? AUTHORITY_NONE : authority(m, r);
	if (r->rcode == DNS_NOERROR && (r->answers || depth == AUTHORITY_REFERRAL))
		return note_answered_name(m, hash, now, guard->new_names);
	if (!is_negative(r) || is_answered(hash, now) || goes_to_verified(r, now))
		return 0;
	if (depth >= AUTHORITY_NONE)
		return r->rcode == DNS_NOERROR ? 0 : charge_domains(skb, m, r->l4, guard->flooded);
	if (depth > ZONE_DEPTH_MOST)
		depth = ZONE_DEPTH_MOST;
	if (depth >= ZONE_DEPTH_LEAST && depth < m->labels)
		charge_zone(skb, m, depth, r->l4, guard->flooded);
	return 0;
}
