/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Requests at servers of RakNet, as Minecraft Bedrock has it: https://github.com/vp817/RakNetProtocolDoc. A server replies to a client's first request, and
 * the reply may have a cookie. The second request has this cookie. During a flood this program sends the reply, with its own cookie. The server does not
 * know that cookie. So this program turns the second request into a first one, and raknetleaving.h turns the server's reply into the second one.
 * internal/model/packet/raknet.go defines the messages.
 */
#pragma once

#include "challenge.h"
#include "packet.h"

enum {
	RAKNET_REPLY1 = 6,
	RAKNET_SHORT = 28, /* bytes of a reply without a cookie */
	RAKNET_LONG = 32,  /* bytes of a reply with a cookie; a request has at least as many */
	RAKNET_COOKIE_AT = 17,
	RAKNET_ADDRESS_AT = 22,
	RAKNET_ADDRESS4 = 7, /* bytes of an address in a message */
	RAKNET_ADDRESS6 = 29,
	RAKNET_BEHIND = 10, /* bytes behind the address in a second request */
	RAKNET_REQUEST4 = RAKNET_ADDRESS_AT + RAKNET_ADDRESS4 + RAKNET_BEHIND, /* bytes of one with a cookie */
	RAKNET_REQUEST6 = RAKNET_ADDRESS_AT + RAKNET_ADDRESS6 + RAKNET_BEHIND,
	RAKNET_REST4 = RAKNET_REQUEST4 - RAKNET_ADDRESS_AT, /* bytes of it from the address on */
	RAKNET_REST6 = RAKNET_REQUEST6 - RAKNET_ADDRESS_AT,
	RAKNET_HEADERS = 28,    /* bytes that a client adds to the length of its request, for the MTU */
	RAKNET_LEAST_MTU = 576, /* clients try no less; a server that announced only this was not asked for more */
	RAKNET_MOST_MTU = 1492,
};

#define RAKNET_MAGIC1 0xfefefefe00ffff00ULL /* as a little-endian machine loads it */
#define RAKNET_MAGIC2 0x78563412fdfdfdfdULL
#define RAKNET_WAIT 2000000000ULL /* nanoseconds in which the server may reply */

/* A message from the second byte of the UDP header on, so that the words in it are aligned. */
struct raknet_start {
	__u8 header[7];
	__u8 kind;
	__u64 magic[2];
	union {
		struct {
			__u8 cookie[4]; /* of a second request; in a first one, the first byte is the version */
			__u8 proof;
			__u8 family;
		};
		struct {
			__u8 guid[8]; /* of a reply: the server's GUID */
			__u8 security;
			__u8 theirs[4]; /* the cookie if security is not 0; otherwise the MTU is here */
			__u8 mtu[2];
			__u8 none;
		};
	};
};

/* The properties that a server has announced. */
struct raknet_server {
	__u8 guid[8];
	__u32 mtu; /* the largest that it has announced */
	__u32 unused;
};

/* A host with many addresses, or one that forwards replies, may fill the map: it then evicts the server that was used longest ago. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct service_key);
	__type(value, struct raknet_server);
} raknet_servers SEC(".maps");

/* A second request with a cookie of this program. It is kept from the address in it on. */
struct raknet_request {
	__u64 until; /* nanoseconds of CLOCK_MONOTONIC until which it waits for the server's reply */
	__u32 length;
	__u32 unused;
	__u8 rest[RAKNET_REST6 + 1];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct service_client);
	__type(value, struct raknet_request);
} raknet_requests SEC(".maps");

static __always_inline bool has_magic(const struct raknet_start *s)
{
	return s->magic[0] == RAKNET_MAGIC1 && s->magic[1] == RAKNET_MAGIC2;
}

/*
 * Reads a request of length bytes behind the UDP header at l4. Returns its kind. The upper half has the version of a first request, and the cookie of
 * a second one, which also has HAS_CHALLENGE. Returns 0 for any other datagram. A global function.
 */
__noinline __u64 read_request(context *ctx, __u32 l4, __u32 length)
{
	struct raknet_start s = {};

	if (length < RAKNET_LONG || load_frame(ctx, l4 + 1, &s, offsetof(struct raknet_start, family) + 1) ||
	    !has_magic(&s))
		return 0;
	if (s.kind == RAKNET_REQUEST1)
		return s.cookie[0] >> VERSION_BITS ? 0 : RAKNET_REQUEST1 | (__u64)s.cookie[0] << 32;
	if (s.kind != RAKNET_REQUEST2 ||
	    !((s.family == 4 && length == RAKNET_REQUEST4) || (s.family == 6 && length == RAKNET_REQUEST6)))
		return 0;
	return RAKNET_REQUEST2 | HAS_CHALLENGE | (__u64)word_of(s.cookie) << 32;
}

/* The entry of the server at the destination of a packet; NULL if the server has announced nothing yet. */
static __always_inline struct raknet_server *server_of(struct packet *p)
{
	struct service_key key = { .service = p->dst, .port = p->port & 0xffff };

	return bpf_map_lookup_elem(&raknet_servers, &key);
}

/* The MTU that a server agrees to. */
static __always_inline __u32 agreed_mtu(struct raknet_server *server, __u32 asked)
{
	__u32 most = server->mtu > RAKNET_LEAST_MTU ? server->mtu : RAKNET_MOST_MTU;

	return asked < most ? asked : most;
}
