/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns a query at a game server into what a2s.h and raknet.h say: a challenge, which is never longer than the query, or the service's latest answer. */
#pragma once

#include "a2s.h"
#include "client.h"
#include "dnsreply.h"
#include "throttle.h"

/* Turns the IP header round, of a frame that has it: the verifier does not see that where IPv6 is, there is more. */
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
 * Whether a frame with a query, whose headers begin at these offsets, can become an answer of so many bytes from the UDP header on. Its Ethernet addresses
 * are exchanged then. See make_reply() for others.
 */
static __always_inline bool begins_answer(struct packet *p, void *data, void *end, __u32 l4, __u32 length)
{
	struct udphdr *udp = data + l4;

	return p->l4 == l4 && (void *)udp + length <= end && udp->source && !(p->family && !udp->check) &&
	       return_ethernet(data);
}

/* Turns the headers of such a frame round. Returns the length of the frame, 0 if it has no IP header. */
static __always_inline __u32 end_answer(struct xdp_md *ctx, void *data, void *end, __u32 l3, bool v6, __u32 length)
{
	__u32 l4 = l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	if (!return_ip(data, end, l3, v6, length))
		return 0;
	return_udp(data + l4, length);
	set_checksums(ctx, l3, l4, v6, length);
	return l4 + length;
}

/*
 * Turns a query into a challenge. Returns the length of the frame, to which the caller cuts it, or 0 when there is none:
 * see make_reply(). A global function.
 */
__noinline __u32 make_challenge(struct xdp_md *ctx, struct packet *p)
{
	const __u32 length = sizeof(struct udphdr) + A2S_SHORT;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4;
	struct a2s_start *message;
	bool v6;

	if (!p || bpf_xdp_get_buff_len(ctx) != end - data)
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
 * Turns a first request at a server of RakNet, of which something is known, into its reply, likewise. As RakNet does, it takes the length of the request
 * for what the way to the client lets through. A global function.
 */
__noinline __u32 make_reply1(struct xdp_md *ctx, struct packet *p)
{
	const __u32 length = sizeof(struct reply1_message);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4, version, mtu;
	struct reply1_message *message;
	struct raknet_server *server;
	bool v6;

	if (!p || bpf_xdp_get_buff_len(ctx) != end - data)
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

enum {
	MOST_HEADERS = 128, /* bytes, of Ethernet, VLAN tags, IP and UDP */
	MOST_IN_FRONT =
		192, /* by which a frame may grow in front: all drivers leave 256 bytes there, of which the kernel takes some (XDP_PACKET_HEADROOM) */
};

/*
 * Makes a frame, whose headers have so many bytes, longer by some bytes or shorter. Most drivers leave space behind a frame. A veth does not, so
 * there the headers move to the front. Returns whether that was possible; else the frame is as it was. A global function.
 */
__noinline __u32 resize_frame(struct xdp_md *ctx, __u32 headers, int by)
{
	__u8 copy[MOST_HEADERS];

	if (!bpf_xdp_adjust_tail(ctx, by))
		return 1;
	if (by <= 0 || by > MOST_IN_FRONT || !headers || headers > MOST_HEADERS)
		return 0;
	headers = known_length(headers, MOST_HEADERS);
	__builtin_memset(copy, 0, sizeof(copy)); /* before Linux 6.3 all that may be read has to be written first */
	if (bpf_xdp_load_bytes(ctx, 0, copy, headers) || bpf_xdp_adjust_head(ctx, -by))
		return 0;
	return !bpf_xdp_store_bytes(ctx, 0, copy, headers);
}

/*
 * Turns a query into the service's latest answer. Returns the length of the frame, 0 when there is none: see make_reply(). A global
 * function.
 */
__noinline __u32 make_served(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = ip_offset(data, end), l4, size, length;
	struct a2s_answer *a;
	struct udphdr *udp;
	bool v6;

	if (!p || bpf_xdp_get_buff_len(ctx) != end - data)
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
	if (!resize_frame(ctx, l4 + sizeof(*udp), (int)(l4 + length) - (int)p->bytes))
		return 0;
	if (bpf_xdp_store_bytes(ctx, l4 + sizeof(*udp), a->data, size))
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

#define PASS_INTERVAL 1000000 /* nanoseconds, and */
#define PASS_BURST 100        /* how many more may come at once, of queries that cannot be answered here */

static __u64 pass_next;

/* Whether one more such query goes to the service. A global function, so that its variable is not on the stack of others. */
__noinline __u32 goes_to_service(struct packet *p)
{
	__u64 next = read_once(&pass_next);

	if (!p || !within_rate(&next, time_of(p), PASS_INTERVAL, PASS_BURST))
		return false;
	pass_next = next;
	return true;
}

enum raknet_known {
	RAKNET_NONE, /* a packet is for no server of RakNet */
	RAKNET_UNKNOWN,
	RAKNET_KNOWN,
};

/* Whether anything is known of the server of RakNet that a packet is for: enum raknet_known. A global function, likewise. */
__noinline __u32 knows_server(struct packet *p)
{
	if (!p || !is_for_raknet(p))
		return RAKNET_NONE;
	return server_of(p) ? RAKNET_KNOWN : RAKNET_UNKNOWN;
}

enum {
	SEND_INTERVAL = 125, /* nanoseconds between two answers of a CPU: 8 million a second, */
	SEND_BURST = 800000, /* and so many more at once, as the coarse clock stands still for some milliseconds */
};

/* When a CPU may send the next answer to a query. A word for all CPUs would cost each more than the answer. */
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
 * Answers a query with a challenge. Counts it, with the bytes sent, apart from the query. A server of RakNet has to be asked before anything is known of
 * it.
 */
static __always_inline int challenge(struct xdp_md *ctx, struct packet *p)
{
	__u32 raknet = admits ? knows_server(p) : RAKNET_NONE, length;

	if (raknet == RAKNET_UNKNOWN)
		return goes_to_service(p) ? XDP_PASS : XDP_DROP;
	if (!may_answer(ctx, p) || !may_send(time_of(p)))
		return XDP_DROP;
	length = raknet == RAKNET_KNOWN ? make_reply1(ctx, p) : make_challenge(ctx, p);
	if (!length || bpf_xdp_adjust_tail(ctx, length - p->bytes))
		return XDP_DROP;
	count(DECISION(SLOT_REPLIES, VERDICT_PASS), length);
	return XDP_TX;
}

/*
 * Answers a query in place of the service, likewise. An answer that its frame has no space for, as it may be on a veth, is the service's
 * own.
 */
static __always_inline int serve(struct xdp_md *ctx, struct packet *p)
{
	__u32 length = may_answer(ctx, p) && may_send(time_of(p)) ? make_served(ctx, p) : 0;

	if (length) {
		count(DECISION(SLOT_REPLIES, VERDICT_PASS), length);
		return XDP_TX;
	}
	if (!goes_to_service(p))
		return XDP_DROP;
	note_game_query(p, a2s_query(ctx, p));
	return XDP_PASS;
}

/* The sum of 16-bit words that a sum of larger ones stands for (RFC 1071). */
static __always_inline __u16 folded(__s64 sum)
{
	return ~checksum(sum);
}

/* The payload of a request, with zeros behind it. */
struct request_bytes {
	__u8 at[64];
};

/*
 * Makes the second request of a client with a cookie of ours a first one: of the same length, with the version that the cookie has. A word in what the
 * server takes for padding keeps the sum of all words as it is. So no checksum changes, whether it is in the packet or a device has still to compute it.
 * Returns false for a frame that does not have all of it. A global function.
 */
__noinline __u32 make_request1(struct xdp_md *ctx, struct packet *p, __u64 query, __u32 six)
{
	const __u32 shown = RAKNET_COOKIE_AT + 1;
	struct request_bytes b = {};
	__u16 *word;
	__s64 sum;

	if (!p || (six ? bpf_xdp_load_bytes(ctx, p->payload, &b, RAKNET_REQUEST6)
		       : bpf_xdp_load_bytes(ctx, p->payload, &b, RAKNET_REQUEST4)))
		return false;
	sum = folded(bpf_csum_diff(NULL, 0, (void *)&b, sizeof(b), 0));
	b.at[0] = RAKNET_REQUEST1;
	b.at[RAKNET_COOKIE_AT] = cookie_version(query);
	__builtin_memset(b.at + shown, 0, sizeof(b) - shown);
	word = (void *)(b.at + (six ? RAKNET_REQUEST6 - 3 : RAKNET_REQUEST4 - 3));
	*word = folded(sum + checksum(bpf_csum_diff(NULL, 0, (void *)&b, sizeof(b), 0)));
	return !(six ? bpf_xdp_store_bytes(ctx, p->payload, &b, RAKNET_REQUEST6)
		     : bpf_xdp_store_bytes(ctx, p->payload, &b, RAKNET_REQUEST4));
}

/* Notes the second request of a client, which waits for the server's reply to the first. A global function. */
__noinline __u32 note_request(struct xdp_md *ctx, struct packet *p, __u32 six)
{
	struct raknet_request r = {};
	struct service_client c;

	if (!p || (six ? bpf_xdp_load_bytes(ctx, p->payload + RAKNET_ADDRESS_AT, r.rest, RAKNET_REST6)
		       : bpf_xdp_load_bytes(ctx, p->payload + RAKNET_ADDRESS_AT, r.rest, RAKNET_REST4)))
		return false;
	c = client_key(p);
	r.length = six ? RAKNET_REST6 : RAKNET_REST4;
	r.until = time_of(p) + RAKNET_WAIT;
	bpf_map_update_elem(&raknet_requests, &c, &r, BPF_ANY);
	return true;
}

/*
 * Lets a packet to a service of RakNet pass. A second request with a cookie of ours becomes a first one, whatever has let it pass: the server would take
 * its sender for a forger. A global function.
 */
__noinline int admit(struct xdp_md *ctx, struct packet *p)
{
	__u64 query;
	__u32 six;

	if (!p || !p->payload || !is_for_raknet(p))
		return XDP_PASS;
	query = read_request(ctx, p->l4, datagram_length(p));
	if (!(query & HAS_CHALLENGE) || !has_request_cookie(p, query))
		return XDP_PASS;
	six = datagram_length(p) == RAKNET_REQUEST6;
	if (note_request(ctx, p, six))
		make_request1(ctx, p, query, six);
	return XDP_PASS;
}
