/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Challenges to clients of game servers (a2s.h, raknet.h): a cookie of the client's address and port and of the time. A client that sends the
 * cookie back has received it. The program stores no clients.
 */
#pragma once

#include "bits.h"
#include "clock.h"
#include "cookie.h"
#include "ends.h"
#include "limit.h"
#include "packet.h"
#include "replyflow.h"
#include "siphash.h"

/* Whether the policy protects a service of A2S or RakNet (challenges), and one of RakNet (admits). Constants. */
const volatile bool challenges;
const volatile bool admits;

enum {
	HAS_CHALLENGE = 1 << 8, /* a flag beside the kind of a query: the upper half has a challenge */
	COOKIE_UNIT = 36,       /* a unit of time is 2^36 ns, 69 s; a cookie is valid for one unit to two */
	UNIT_BITS = 20,         /* bits of the unit's number in the hash of a cookie: they repeat after two years */
	VERSION_BITS = 4,       /* bits of a client's version, which a RakNet cookie has above its lowest bit */
	RAKNET_REQUEST1 = 5,
	RAKNET_REQUEST2 = 7, /* kinds of RakNet messages, which A2S does not have */
};

/* A client of a service. */
struct service_client {
	struct address address;
	struct address service;
	__u32 ports; /* the client's port, and in the upper half the service's port */
	__u32 unused;
};

/* The key of an entry about a service: the service, and the kind of the entry. */
struct service_key {
	struct address service;
	__u32 port;
	__u32 kind;
};

static __always_inline struct service_client client_key(struct packet *p)
{
	struct service_client c = { .address = p->src,
				    .service = p->dst,
				    .ports = (p->sport & 0xffff) | p->port << 16 };

	return c;
}

static __always_inline __u32 word_of(const __u8 bytes[4])
{
	return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (__u32)bytes[3] << 24;
}

static __always_inline void set_word(__u8 to[4], __u32 word)
{
	to[0] = word;
	to[1] = word >> 8;
	to[2] = word >> 16;
	to[3] = word >> 24;
}

/* How many bytes of a UDP packet follow its header. */
static __always_inline __u32 datagram_length(struct packet *p)
{
	return p->payload && p->end > p->payload ? p->end - p->payload : 0;
}

#define NO_CHALLENGE 0xffffffff /* in a query of A2S: the sender asks for a challenge */

/*
 * The cookie of a client for a unit of time, counted from the start of the system, and for a version. Its lowest bit is that of the unit, and the
 * next `bits` bits are the version. A cookie of A2S has no version, and is never NO_CHALLENGE. It uses the lasting secrets of the table of replies.
 */
static __always_inline __u32 client_cookie(const struct ends *e, __u64 unit, __u64 version, __u32 bits)
{
	struct reply_secrets *k = reply_secrets();
	__u64 key[2] = { k->address[0], k->address[1] };
	struct siphash h = hash_addresses(e, key);
	__u64 rest = e->ports | version << 32 | (unit & (BIT(UNIT_BITS) - 1)) << (32 + VERSION_BITS);
	__u32 addresses = e->v6 ? 32 : 8; /* bytes */
	__u32 shown = (unit & 1) | version << 1, cookie;

	cookie = (siphash13_end(&h, rest, addresses + 7) & ~((2U << bits) - 1)) | shown;
	return !bits && cookie == NO_CHALLENGE ? cookie - 2 : cookie;
}

/* The cookie of a packet's source, by client_cookie(). */
static __always_inline __u32 packet_cookie(struct packet *p, __u64 unit, __u64 version, __u32 bits)
{
	struct ends e = ends_of(p);

	return client_cookie(&e, unit, version, bits);
}

/* The unit of time of a cookie, by its lowest bit: the present unit or the one before. */
static __always_inline __u64 unit_of(__u64 now, __u32 challenge)
{
	__u64 unit = now >> COOKIE_UNIT;

	return unit - ((unit ^ challenge) & 1);
}

/* Whether a query is a second request of RakNet. */
static __always_inline bool is_second(__u64 query)
{
	return admits && (query & 0xff) == RAKNET_REQUEST2;
}

/* The version that the cookie of a second request has. */
static __always_inline __u32 cookie_version(__u64 query)
{
	return query >> 33 & (BIT(VERSION_BITS) - 1);
}

/* Whether a query has a valid cookie of its source, with a version: a cookie of the present unit of time or of the one before. */
static __always_inline bool cookie_holds(struct packet *p, __u64 query, __u64 version, __u32 bits)
{
	__u32 challenge = query >> 32;

	if (!p || !(query & HAS_CHALLENGE) || p->seen & SEEN_NO_COOKIE)
		return false;
	if (p->seen & SEEN_COOKIE)
		return true;
	if (packet_cookie(p, unit_of(time_of(p), challenge), version, bits) == challenge) {
		p->seen |= SEEN_COOKIE;
		return true;
	}
	p->seen |= SEEN_NO_COOKIE;
	return false;
}

/* Whether a query of A2S has a valid cookie. A global function. */
__noinline __u32 has_cookie(struct packet *p, __u64 query)
{
	return cookie_holds(p, query, 0, 0);
}

/* Whether a second request of RakNet has a valid cookie. A global function: one for both protocols would cost 40 instructions more. */
__noinline __u32 has_request_cookie(struct packet *p, __u64 query)
{
	return cookie_holds(p, query, cookie_version(query), VERSION_BITS);
}
