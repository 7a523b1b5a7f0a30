/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Datagrams of protocols in which each end chooses an identifier (internal/model/packet/datagram.go). If a datagram has an
 * identifier that a service has issued, its sender has received the identifier from the service. A flood of forged packets
 * does not have such identifiers. issued.h notes the identifiers in the table of conversations (replyflow.h), each like a
 * conversation without ports. An identifier is remembered for 30 s, and for ten minutes after a datagram with it has arrived.
 */
#pragma once

#include "a2s.h"
#include "flood.h"
#include "packet.h"
#include "raknet.h"
#include "replyflow.h"

/* Whether the policy protects a service of such a protocol. Constant. */
const volatile bool reads_datagrams;

enum datagrams {
	DATAGRAMS_GENERIC,
	DATAGRAMS_WIREGUARD,
	DATAGRAMS_QUIC,
	DATAGRAMS_A2S,
	DATAGRAMS_RAKNET,
};

enum {
	LEAST_WIREGUARD = 32, /* bytes, as below */
	LEAST_QUIC = 21,
	LEAST_ID = 4,
	MOST_ID = 20,
	WIREGUARD_INITIATION = 1 << 24, /* a byte, and three of 0 */
	WIREGUARD_RESPONSE = 2 << 24,
	WIREGUARD_COOKIE = 3 << 24,
	WIREGUARD_DATA = 4 << 24,
	INITIATION_LENGTH = 148,
	RESPONSE_LENGTH = 92,
	COOKIE_LENGTH = 64,
	MAC1_AT = 116,
	QUIC_V1 = 1,
	QUIC_V2 = 0x6b3343cf,
	INITIAL_LENGTH = 1200,
	ID_FACTOR1 = 0x1e3779b1,
	ID_FACTOR2 = 0x45d9f3b5,
	DRAWN_ID = 8, /* the least length of an identifier that a client draws for the other side */
};

/* For each UDP port, the number of its flood plus 1; 0: it has none. */
__u8 port_floods[1 << 16] SEC(".data.ports");

/*
 * Masks of the bits of an identifier in three words, by the length of the identifier. The generated entry uses them.
 * internal/compile/xdp/flood.go fills the table. It has 32 elements, because the verifier only knows that the length has 5 bits.
 */
__u64 id_masks[32][3] SEC(".data.masks");

/* The limits of the flood of a UDP port, and its number in *number. NULL if no flood is detected at this port. */
static __always_inline struct flood *flood_of_port(__be16 port, __u32 *number)
{
	*number = port_floods[opaque(bpf_ntohs(port)) & 0xffff] - 1; /* see own_port() */
	return bpf_map_lookup_elem(&flood_limits, number);
}

/* Whether a packet is for a service of RakNet. */
static __always_inline bool is_for_raknet(struct packet *p)
{
	__u32 number;
	struct flood *f = flood_of_port(bpf_htons(p->port & 0xffff), &number);

	return f && p->proto == IPPROTO_UDP && f->protocol == DATAGRAMS_RAKNET;
}

/* The query or request in a packet to the service of a flood, as read_query() and read_request() return it. */
static __always_inline __u64 query_of(context *ctx, struct packet *p, __u32 number)
{
	struct flood *f = admits ? bpf_map_lookup_elem(&flood_limits, &number) : NULL;

	if (!p->payload)
		return 0;
	if (f && f->protocol == DATAGRAMS_RAKNET)
		return read_request(ctx, p->l4, datagram_length(p));
	return serves ? a2s_query(ctx, p) : 0;
}

/* The UDP header, and the first bytes behind it. */
struct datagram {
	__be16 sport;
	__be16 dport;
	__be16 length;
	__be16 check;
	union {
		__be32 kind; /* of WireGuard */
		struct {
			__u8 first; /* of QUIC */
			__u8 version[4];
			__u8 id_length; /* the receiver's, in a long header */
		};
		__u8 start[12];
	};
};

/* An identifier of up to MOST_ID bytes, padded with zeros. It has space for 32 bytes: the verifier only knows that the length has 5 bits. */
struct datagram_id {
	__u64 word[4];
};

/* The place of an identifier behind the UDP header. */
struct id_place {
	__u32 at; /* 0: there is none */
	__u32 size;
};

static __always_inline __u32 quic_version(const struct datagram *d)
{
	return (__u32)d->version[0] << 24 | d->version[1] << 16 | d->version[2] << 8 | d->version[3];
}

/* The place of the receiver's identifier: Datagrams.Named() of datagram.go. length is the payload's, id_length that of the service's identifiers. */
static __always_inline struct id_place named_id(const struct datagram *d, __u32 protocol, __u32 length, __u32 id_length)
{
	struct id_place none = {}, place = { 4, 4 };

	if (protocol == DATAGRAMS_WIREGUARD) {
		if (length < LEAST_WIREGUARD)
			return none;
		if (d->kind == bpf_htonl(WIREGUARD_DATA) ||
		    (d->kind == bpf_htonl(WIREGUARD_COOKIE) && length == COOKIE_LENGTH))
			return place;
		place.at = 8;
		return d->kind == bpf_htonl(WIREGUARD_RESPONSE) && length == RESPONSE_LENGTH ? place : none;
	}
	place.at = d->first & 0x80 ? 6 : 1;
	place.size = d->first & 0x80 ? d->id_length : id_length;
	return length < LEAST_QUIC || length < place.at + place.size ? none : place;
}

/*
 * Sets the key of an identifier. The service that has issued the identifier is not part of the key. The generated
 * entry computes the same key (internal/compile/xdp/entry/datagram.go). The factors may be any odd numbers.
 */
static __always_inline void issued_key(struct reply_key *t, const struct datagram_id *id)
{
	t->pair = id->word[0] + id->word[1] * ID_FACTOR1 + id->word[2] * ID_FACTOR2;
	t->ports = 0;
	t->kind = REPLY_ISSUED;
}

/* Changes the key of an identifier into its key for one client. client is the hash of the client's key. */
static __always_inline void issued_to_key(struct reply_key *t, __u64 client)
{
	t->pair = t->pair * ID_FACTOR1 ^ client;
}

/* The size of the identifier at a place, with bounds that the verifier knows; 0 if there is none, or its size is not allowed. */
static __always_inline __u32 id_size(struct id_place place)
{
	__u32 size = opaque(place.size) & 31;

	return !place.at || place.size > MOST_ID || size < LEAST_ID ? 0 : size;
}

/*
 * Reads the key of the receiver's identifier in a datagram. l4 is the offset of the UDP header, length is the number of bytes behind it, and
 * number is that of the service's flood. Returns 0 if there is none. A global function, so that its data is not on the stack of its callers.
 */
__noinline __u32 read_issued_key(context *ctx, __u32 l4, __u32 length, __u32 number, struct reply_key *t)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);
	struct datagram_id id = {};
	struct id_place place;
	struct datagram d;
	__u32 size;

	if (!t || !f || f->protocol == DATAGRAMS_A2S || f->protocol == DATAGRAMS_RAKNET ||
	    load_frame(ctx, l4, &d, sizeof(d))) /* queries: client.h */
		return 0;
	place = named_id(&d, f->protocol, length, read_once(&flood_state(number)->id_length));
	size = id_size(place);
	if (!size || load_frame(ctx, l4 + sizeof(struct udphdr) + place.at, &id, size))
		return 0;
	issued_key(t, &id);
	return 1;
}

static __always_inline bool quic_begins(context *ctx, const struct datagram *d, __u32 payload, __u32 length)
{
	__u32 version = quic_version(d), theirs = d->id_length, kind = d->first >> 4 & 3;
	__u8 own;

	if (length < LEAST_QUIC || !(d->first & 0x40))
		return false;
	if (!(d->first & 0x80))
		return true;
	if ((version != QUIC_V1 && version != QUIC_V2) || theirs < DRAWN_ID || theirs > MOST_ID ||
	    length < theirs + 7 || load_frame(ctx, payload + 6 + theirs, &own, 1) || own > MOST_ID)
		return false;
	kind -= version == QUIC_V2;
	return kind == 1 || (kind == 0 && length >= INITIAL_LENGTH);
}

/*
 * Whether a datagram does not have the form of a client's first datagram: the negation of Datagrams.Begins() of
 * datagram.go. l4 is the offset of the UDP header, and length is the number of bytes behind it. A global function.
 */
__noinline __u32 stray_datagram(context *ctx, __u32 l4, __u32 length, __u32 number)
{
	struct flood *f = bpf_map_lookup_elem(&flood_limits, &number);
	__u32 payload = l4 + sizeof(struct udphdr);
	struct datagram d;
	__u64 mac1[2];

	if (!f || load_frame(ctx, l4, &d, sizeof(d)))
		return 1;
	if (f->protocol == DATAGRAMS_QUIC)
		return !quic_begins(ctx, &d, payload, length);
	if (d.kind != bpf_htonl(WIREGUARD_INITIATION) || length != INITIATION_LENGTH ||
	    load_frame(ctx, payload + MAC1_AT, mac1, sizeof(mac1)))
		return 1;
	return !(mac1[0] | mac1[1]);
}

static __always_inline bool is_stray(context *ctx, struct packet *p, __u32 number)
{
	return !p->payload || stray_datagram(ctx, p->l4, datagram_length(p), number);
}
