/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns a query at a game server into an answer (a2s.h, raknet.h): a challenge, which is never longer than the query, or the service's latest answer. */
#pragma once

#include "a2s.h"
#include "client.h"
#include "dnsreply.h"
#include "throttle.h"

/* Turns the IP header into that of an answer. Returns false if it is not in the frame: the verifier does not know that the frame has an IPv6 header. */
static __always_inline bool return_ip(void *data, void *end, __u32 l3, bool v6, __u32 length)
{
	if (!v6) {
		return_ipv4(data + l3, length);
		return true;
	}
	if (data + l3 + sizeof(struct ipv6hdr) > end)
		return false;
	return_ipv6(data + l3, length);
	return true;
}

/*
 * Whether a frame with a query can become an answer of length bytes from the UDP header on, which is at l4. If so, swaps its MAC addresses.
 * make_reply() says which frames cannot.
 */
static __always_inline bool begins_answer(struct packet *p, void *data, void *end, __u32 l4, __u32 length)
{
	struct udphdr *udp = data + l4;

	return p->l4 == l4 && (void *)udp + length <= end && udp->source && !(p->family && !udp->check) &&
	       return_ethernet(data);
}

/* Turns the headers of a frame that begins_answer() accepts into those of an answer. Returns the length of the frame, 0 if it has no IP header. */
static __always_inline __u32 end_answer(context *ctx, void *data, void *end, __u32 l3, bool v6, __u32 length)
{
	__u32 l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	if (!return_ip(data, end, l3, v6, length))
		return 0;
	return_udp(data + l4, length);
	set_checksums(ctx, l3, l4, v6, length);
	return l4 + length;
}

/*
 * Turns a query into a challenge. Returns the length of the frame, to which the caller cuts it, or 0 when there is no answer:
 * see make_reply(). A global function.
 */
__noinline __u32 make_challenge(context *ctx, struct packet *p)
{
	const __u32 length = sizeof(struct udphdr) + A2S_SHORT;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4;
	struct a2s_start *message;
	bool v6;

	if (!p || frame_length(ctx) != end - data)
		return 0;
	v6 = p->family;
	l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	message = data + l4;
	if ((void *)message + length > end || !begins_answer(p, data, end, l4, length))
		return 0;
	message->kind = A2S_CHALLENGE;
	set_word(message->challenge, packet_cookie(p, time_of(p) >> COOKIE_UNIT, 0, 0));
	return end_answer(ctx, data, end, l3, v6, length);
}

/* The first reply of a server of RakNet, behind a UDP header. */
struct reply1_message {
	struct udphdr udp;
	__u8 kind;
	__u8 magic[16]; /* as in the request */
	__u8 guid[8];
	__u8 security;
	__u8 cookie[4];
	__u8 mtu[2];
} __attribute__((packed));

/*
 * Turns a first request at a known server of RakNet into the server's reply. Returns the same as make_challenge(). Like RakNet, it takes the length of the
 * request for the MTU of the path to the client. A global function.
 */
__noinline __u32 make_reply1(context *ctx, struct packet *p)
{
	const __u32 length = sizeof(struct reply1_message);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4, version, mtu;
	struct reply1_message *message;
	struct raknet_server *server;
	bool v6;

	if (!p || frame_length(ctx) != end - data)
		return 0;
	v6 = p->family;
	l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	message = data + l4;
	server = server_of(p);
	if (!server || (void *)(message + 1) > end || !begins_answer(p, data, end, l4, length))
		return 0;
	version = message->guid[0] & (BIT(VERSION_BITS) - 1);
	mtu = agreed_mtu(server, datagram_length(p) + RAKNET_HEADERS);
	message->kind = RAKNET_REPLY1;
	__builtin_memcpy(message->guid, server->guid, sizeof(message->guid));
	message->security = 1;
	set_word(message->cookie, packet_cookie(p, time_of(p) >> COOKIE_UNIT, version, VERSION_BITS));
	message->mtu[0] = mtu >> 8;
	message->mtu[1] = mtu;
	return end_answer(ctx, data, end, l3, v6, length);
}

/*
 * Makes a frame of `from` bytes as long as given. headers is the length of its headers. Most drivers leave space behind a frame. A veth does not, so
 * there the headers move to the front. Returns whether that was possible; if not, the frame is unchanged. A global function.
 */
__noinline __u32 resize_frame(context *ctx, __u32 headers, __u32 from, __u32 to)
{
	/* For an argument that is not used, as at tc, the compiler passes nothing, and the verifier refuses that. */
	asm volatile("" : : "r"(headers), "r"(from));
	return !set_length(ctx, from, to) || grow_in_front(ctx, headers, to - from);
}

/*
 * Turns a query into the service's latest answer. Returns the length of the frame, 0 when there is none: see make_reply(). A global
 * function.
 */
__noinline __u32 make_served(context *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4, size, length;
	struct a2s_answer *a;
	struct udphdr *udp;
	bool v6;

	if (!p || frame_length(ctx) != end - data)
		return 0;
	a = answer_of(p, read_query(ctx, p->l4, datagram_length(p)));
	v6 = p->family;
	l4 = (l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr))) & 0x7f;
	udp = data + l4;
	if (!a || p->l4 != l4 || (void *)(udp + 1) > end || !udp->source || (v6 && !udp->check) || is_with_group(data))
		return 0;
	size = a->length;
	if (!size || size > A2S_MOST)
		return 0;
	size = known_length(size, A2S_SPACE);
	length = sizeof(*udp) + size;
	if (!resize_frame(ctx, l4 + sizeof(*udp), p->bytes, l4 + length))
		return 0;
	if (store_frame(ctx, l4 + sizeof(*udp), a->data, size))
		return 0;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	udp = data + l4;
	if ((void *)(udp + 1) > end || !return_ethernet(data))
		return 0;
	if (!return_ip(data, end, l3, v6, length))
		return 0;
	return_udp(udp, length);
	set_checksums_with(ctx, l3, l4, v6, length, sizeof(*udp), a->sum);
	return l4 + length;
}

#define PASS_INTERVAL 1000000 /* nanoseconds between two queries that this program leaves to the service */
#define PASS_BURST 100        /* how many more of these queries may go at once */

static __u64 pass_next;

/* Whether one more query that this program cannot answer may go to the service. A global function, so that its variable is not on the callers' stack. */
__noinline __u32 goes_to_service(struct packet *p)
{
	__u64 next = read_once(&pass_next);

	if (!p || !within_rate(&next, time_of(p), PASS_INTERVAL, PASS_BURST))
		return false;
	pass_next = next;
	return true;
}

enum raknet_known {
	RAKNET_NONE, /* the packet is not for a server of RakNet */
	RAKNET_UNKNOWN,
	RAKNET_KNOWN,
};

/* Whether the server of RakNet that a packet is for is known: an enum raknet_known. A global function, like goes_to_service(). */
__noinline __u32 knows_server(struct packet *p)
{
	if (!p || !is_for_raknet(p))
		return RAKNET_NONE;
	return server_of(p) ? RAKNET_KNOWN : RAKNET_UNKNOWN;
}

enum {
	SEND_INTERVAL = 125, /* nanoseconds between two answers of a CPU: 8 million a second */
	SEND_BURST = 800000, /* answers at once beyond that rate: the coarse clock stands still for some ms */
};

/* When a CPU may send the next answer to a query. One word for all CPUs would cost each CPU more than the answer. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} answer_times SEC(".maps");

/* Whether this CPU may send one more answer to a query, at a time of the coarse clock. */
static __always_inline bool may_send(__u64 now)
{
	__u32 zero = 0;
	__u64 *next = bpf_map_lookup_elem(&answer_times, &zero);

	return next && within_rate(next, now, SEND_INTERVAL, SEND_BURST);
}

/*
 * Answers a query with a challenge. Counts the answer, with the bytes sent, apart from the query. As long as a server of RakNet is not known, requests go
 * to the server.
 */
static __always_inline int challenge(context *ctx, struct packet *p)
{
	__u32 raknet = admits ? knows_server(p) : RAKNET_NONE, length;

	if (raknet == RAKNET_UNKNOWN)
		return goes_to_service(p) ? ACTION_PASS : ACTION_DROP;
	if (!may_answer(ctx, p) || !may_send(time_of(p)))
		return ACTION_DROP;
	length = raknet == RAKNET_KNOWN ? make_reply1(ctx, p) : make_challenge(ctx, p);
	if (!length || set_length(ctx, p->bytes, length))
		return ACTION_DROP;
	count(DECISION(SLOT_REPLIES, VERDICT_PASS), wire_length(ctx, length));
	return send_back(ctx);
}

/*
 * Answers a query in place of the service, and counts the answer like challenge(). If the frame has no space for the answer, which happens on a veth,
 * the query goes to the service.
 */
static __always_inline int serve(context *ctx, struct packet *p)
{
	__u32 length = may_answer(ctx, p) && may_send(time_of(p)) ? make_served(ctx, p) : 0;

	if (length) {
		count(DECISION(SLOT_REPLIES, VERDICT_PASS), wire_length(ctx, length));
		return send_back(ctx);
	}
	if (!goes_to_service(p))
		return ACTION_DROP;
	note_game_query(p, a2s_query(ctx, p));
	return ACTION_PASS;
}

/* Folds a sum of larger words into the sum of 16-bit words that is equal to it (RFC 1071). */
static __always_inline __u16 folded(__s64 sum)
{
	return ~checksum(sum);
}

/* The payload of a request, with zeros behind it. */
struct request_bytes {
	__u8 at[64];
};

/*
 * Turns a second request that has a cookie of this program into a first request of the same length, with the version in the cookie. One word in the part
 * that the server takes for padding keeps the sum of all words unchanged. So no checksum changes, whether it is in the packet or a device must compute it.
 * Returns false for a frame that does not contain the whole request. A global function.
 */
__noinline __u32 make_request1(context *ctx, struct packet *p, __u64 query, __u32 six)
{
	const __u32 shown = RAKNET_COOKIE_AT + 1;
	struct request_bytes b = {};
	__u16 *word;
	__s64 sum;

	if (!p ||
	    (six ? load_frame(ctx, p->payload, &b, RAKNET_REQUEST6) : load_frame(ctx, p->payload, &b, RAKNET_REQUEST4)))
		return false;
	sum = folded(bpf_csum_diff(NULL, 0, (void *)&b, sizeof(b), 0));
	b.at[0] = RAKNET_REQUEST1;
	b.at[RAKNET_COOKIE_AT] = cookie_version(query);
	__builtin_memset(b.at + shown, 0, sizeof(b) - shown);
	word = (void *)(b.at + (six ? RAKNET_REQUEST6 - 3 : RAKNET_REQUEST4 - 3));
	*word = folded(sum + checksum(bpf_csum_diff(NULL, 0, (void *)&b, sizeof(b), 0)));
	return !(six ? store_frame(ctx, p->payload, &b, RAKNET_REQUEST6)
		     : store_frame(ctx, p->payload, &b, RAKNET_REQUEST4));
}

/* Keeps the second request of a client until the server replies to the first. A global function. */
__noinline __u32 note_request(context *ctx, struct packet *p, __u32 six)
{
	struct raknet_request r = {};
	struct service_client c;

	if (!p || (six ? load_frame(ctx, p->payload + RAKNET_ADDRESS_AT, r.rest, RAKNET_REST6)
		       : load_frame(ctx, p->payload + RAKNET_ADDRESS_AT, r.rest, RAKNET_REST4)))
		return false;
	c = client_key(p);
	r.length = six ? RAKNET_REST6 : RAKNET_REST4;
	r.until = time_of(p) + RAKNET_WAIT;
	bpf_map_update_elem(&raknet_requests, &c, &r, BPF_ANY);
	return true;
}

/*
 * Passes a packet to a service of RakNet. A second request with a cookie of this program becomes a first request, whichever rule passed it: the server
 * would take its sender for a forger, because it does not know the cookie. A global function.
 */
__noinline int admit(context *ctx, struct packet *p)
{
	__u64 query;
	__u32 six;

	if (!p || !p->payload || !is_for_raknet(p))
		return ACTION_PASS;
	query = read_request(ctx, p->l4, datagram_length(p));
	if (!(query & HAS_CHALLENGE) || !has_request_cookie(p, query))
		return ACTION_PASS;
	six = datagram_length(p) == RAKNET_REQUEST6;
	if (note_request(ctx, p, six))
		make_request1(ctx, p, query, six);
	return ACTION_PASS;
}
