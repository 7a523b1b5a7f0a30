/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Challenges to clients of game servers (a2s.h, raknet.h): a cookie of the client's address and port and of the time. A client that sends it back has
 * received it. No client is remembered.
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

/* Whether the policy protects a service of such a protocol. Constant. */
const volatile bool challenges;
const volatile bool admits; /* of RakNet */

enum {
	HAS_CHALLENGE = 1 << 8, /* beside the kind of a query: the upper half has it */
	COOKIE_UNIT = 36, /* bits of nanoseconds, 69 s: a cookie holds for as long, and at most for twice as long */
	UNIT_BITS = 20,   /* of the number of such a unit that the cookie is of: they come round after two years */
	VERSION_BITS = 4, /* of a client's version, which a cookie of RakNet has above the lowest bit */
	RAKNET_REQUEST1 = 5,
	RAKNET_REQUEST2 = 7, /* kinds of messages: A2S has none of these */
};

/* A client of a service. */
struct service_client {
	struct address address;
	struct address service;
	__u32 ports; /* of the client, and in the upper half of the service */
	__u32 unused;
};

/* Of which service something is noted, and what. */
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

#define NO_CHALLENGE 0xffffffff /* in a query of A2S: its sender asks for one */

/*
 * The cookie of a client, for a number of COOKIE_UNITs since the system started, of which it has the lowest bit, and a version, of which it has
 * so many bits. One of A2S, which has no version, is never NO_CHALLENGE. The secrets of the table of replies stay.
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

/* The same of a packet's source. */
static __always_inline __u32 packet_cookie(struct packet *p, __u64 unit, __u64 version, __u32 bits)
{
	struct ends e = ends_of(p);

	return client_cookie(&e, unit, version, bits);
}

/* The unit of time that a cookie with a challenge's lowest bit can be of: this one, or the one before. */
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

/* Whether a query has the cookie of its source, with a version, that holds: of this unit of time or the one before. */
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

/* Whether a query of A2S has such a cookie. A global function. */
__noinline __u32 has_cookie(struct packet *p, __u64 query)
{
	return cookie_holds(p, query, 0, 0);
}

/* Whether a second request of RakNet has such a cookie. A global function: one for both would cost 40 instructions more. */
__noinline __u32 has_request_cookie(struct packet *p, __u64 query)
{
	return cookie_holds(p, query, cookie_version(query), VERSION_BITS);
}
