/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Verified clients: those whose address was answered over TCP, which egress.h records, and those whose query has a
 * cookie that the server made for them (RFC 7873, RFC 9018).
 */
#pragma once

#include "clock.h"
#include "packet.h"
#include "siphash.h"
#include "verifier.h"

enum {
	MAX_SECRETS = 2,   /* the present one, and the one before, of which clients may still have cookies */
	GUARD_LIMIT = 1,   /* flags: responses are limited */
	GUARD_OBSERVE = 2, /* responses above the limit are only counted */
	GUARD_NAMES = 4,   /* responses are examined: zone.h */
};

/* The configuration of a guard. internal/compile/xdp/guard.go fills this map and the next. */
struct guard {
	__u64 secrets[MAX_SECRETS][2];
	__u32 num_secrets;
	__u32 verify; /* seconds for which an answer over TCP proves an address; 0: it proves none */
	__u32 limit;  /* the limit of responses */
	__u32 slot;   /* the slot that counts responses above the limit */
	__u32 flags;
	__u32 flooded;   /* the limit of negative responses for a zone, above which the zone is flooded */
	__u32 go_on;     /* the limit of queries for a flooded zone, above which the flood goes on */
	__u32 new_names; /* the limit of new names of a domain */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct guard);
} guards SEC(".maps");

/* A byte for each port, as in struct packet: the number of its guard from 1 on, 0 when it has none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64); /* PORT_NONE bytes when there is a guard */
} guard_ports SEC(".maps");

/*
 * The time until which an IPv4 address or an IPv6 /64 is verified, in seconds of CLOCK_MONOTONIC. Only an established
 * connection adds an entry, so forged sources displace none. User space sets the size.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, __u32);
} verified SEC(".maps");

/*
 * Whether there is a guard at all, and one with secrets: kernels before 6.1 lack the clock that cookies need. Constants to
 * the verifier. */
const volatile bool guarded;
const volatile bool verify_cookies;

/*
 * The guard of a port, as in struct packet. opaque() keeps the comparison with PORT_NONE: LLVM knows that a port with
 * swapped bytes has 16 bits, but the verifier of Linux 6.12 does not.
 */
static __always_inline struct guard *guard_of(__u64 port)
{
	__u32 first = 0, number;
	__u8 *guard_by_port = bpf_map_lookup_elem(&guard_ports, &first);

	port = opaque(port);
	if (!guarded || !guard_by_port || port >= PORT_NONE || !guard_by_port[port])
		return NULL;
	number = guard_by_port[port] - 1;
	return bpf_map_lookup_elem(&guards, &number);
}

/* The key of a client in `verified`: the address for IPv4, the /64 for IPv6, which belongs to one client. */
static __always_inline struct address client_of(struct address a, __u32 family)
{
	if (family)
		a.lo = 0;
	return a;
}

static __always_inline __u32 seconds_of(struct packet *p)
{
	return time_of(p) / 1000000000;
}

static __always_inline bool answered_over_tcp(struct packet *p)
{
	struct address client = client_of(p->src, p->family);
	__u32 *expiry = bpf_map_lookup_elem(&verified, &client);

	return expiry && *expiry > seconds_of(p);
}

/* A COOKIE option with a server cookie of version 1: RFC 9018, 4. */
struct cookie {
	__u64 client;
	__u8 version;
	__u8 reserved[3]; /* may be anything, and is hashed as it is */
	__be32 timestamp;
	__u64 hash;
};

enum {
	COOKIE_VERSION = 1,
	COOKIE_PAST = 3600,  /* seconds for which a cookie is valid */
	COOKIE_FUTURE = 300, /* seconds by which its time may be ahead: RFC 9018, 4.3 */
};

/*
 * Whether the time of a cookie is valid, by serial number arithmetic (RFC 1982). Cookies count by CLOCK_REALTIME, which
 * BPF lacks. CLOCK_TAI is ahead of it by 37 s if the kernel was told so, else by 0, which does not matter for a
 * validity of an hour. A question may set another time.
 */
static __always_inline bool cookie_timely(struct packet *p, struct cookie *c)
{
	__u64 now = bpf_ktime_get_tai_ns() + (time_of(p) - bpf_ktime_get_ns());
	__s32 age = (__u32)(now / 1000000000) - bpf_ntohl(c->timestamp);

	return age >= -COOKIE_FUTURE && age <= COOKIE_PAST;
}

/* The hash of RFC 9018, 4.4: over the cookie up to the hash, and the client's address in network byte order. */
static __always_inline __u64 cookie_hash(struct packet *p, struct cookie *c, const __u64 secret[2])
{
	struct siphash h = siphash_begin(secret);

	siphash_add(&h, c->client);
	siphash_add(&h, *(__u64 *)&c->version);
	if (!p->family)
		return siphash_end(&h, bpf_htonl(p->src.lo), 20);
	siphash_add(&h, bpf_cpu_to_be64(p->src.hi));
	siphash_add(&h, bpf_cpu_to_be64(p->src.lo));
	return siphash_end(&h, 0, 32);
}

static __always_inline bool cookie_valid(context *ctx, struct packet *p, struct guard *guard, __u32 offset)
{
	struct cookie c;

	if (load_frame(ctx, offset, &c, sizeof(c)) || c.version != COOKIE_VERSION || !cookie_timely(p, &c))
		return false;
	for (__u32 i = 0; i < MAX_SECRETS; i++)
		if (i < guard->num_secrets && cookie_hash(p, &c, guard->secrets[i]) == c.hash)
			return true;
	return false;
}

/*
 * Whether the client of a query to a guarded service is verified. cookie is the offset of the COOKIE option's data in
 * the frame, 0 without that option, and length its length. A global function.
 */
__noinline __u32 client_verified(context *ctx, struct packet *p, __u32 cookie, __u32 length)
{
	struct guard *guard = p ? guard_of(p->port) : NULL;

	if (!guard)
		return 0;
	if (answered_over_tcp(p))
		return 1;
	return verify_cookies && cookie && length == sizeof(struct cookie) && cookie_valid(ctx, p, guard, cookie);
}
