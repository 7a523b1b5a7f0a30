/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's SYN cookies, and the state of its connections. In mode router, netfilter's SYNPROXY behind this program
 * makes and checks the cookies (bpf_tcp_raw_gen_syncookie_ipv4, Linux 6.0). Where the kernel cannot be given a
 * connection, the cookies are those of the listening socket (bpf_tcp_gen_syncookie, Linux 5.2).
 *
 * The helpers read only the addresses, ports, sequence numbers and MSS of a packet. So the program builds short headers
 * with these on the stack. The verifier then needs no bounds of headers in the frame, and IP options and extension
 * headers do not matter.
 */
#pragma once

#include "cookie.h"
#include "l4.h"
#include "packet.h"

/* The state of a connection in the kernel. */
enum connection {
	CONNECTION_UNKNOWN, /* it was not asked */
	CONNECTION_NONE,
	CONNECTION_STARTED, /* its handshake is not complete, or its socket is in TIME-WAIT */
	CONNECTION_OVER,    /* conntrack remembers it, but it has ended */
	CONNECTION_CLOSING, /* one side has closed it, or closes it by this packet */
	CONNECTION_OPEN,    /* it is open, or this packet opens it: it acknowledges the kernel's SYN-ACK */
};

/* Which methods the protections use, and whether conntrack can be asked. Constants, for internal/compile/image/prune.go. */
const volatile bool protect_listener;
const volatile bool protect_router;
const volatile bool ask_conntrack;

/* The MSS that a SYN without the option stands for (RFC 9293, 3.7.1). */
enum { MSS_DEFAULT = 536 };

/* A TCP header with the MSS option. */
struct short_tcp {
	struct tcphdr tcp;
	__u8 kind;
	__u8 size;
	__be16 mss;
};

/* Short headers with the values of a packet, for the helpers. */
struct short_headers {
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	};
	struct short_tcp l4;
};

static __always_inline __be32 ipv4_of(struct address a)
{
	return bpf_htonl((__u32)a.lo);
}

static __always_inline void put_ipv6(struct in6_addr *to, struct address a)
{
	to->in6_u.u6_addr32[0] = bpf_htonl(a.hi >> 32);
	to->in6_u.u6_addr32[1] = bpf_htonl((__u32)a.hi);
	to->in6_u.u6_addr32[2] = bpf_htonl(a.lo >> 32);
	to->in6_u.u6_addr32[3] = bpf_htonl((__u32)a.lo);
}

static __always_inline void put_addresses(struct short_headers *h, const struct packet *p)
{
	if (p->family) {
		h->v6.version = 6;
		put_ipv6(&h->v6.saddr, p->src);
		put_ipv6(&h->v6.daddr, p->dst);
		return;
	}
	h->v4.version = 4;
	h->v4.ihl = 5;
	h->v4.saddr = ipv4_of(p->src);
	h->v4.daddr = ipv4_of(p->dst);
}

/* Short headers of a SYN with a sequence number and an MSS. */
static __always_inline void syn_headers(struct short_headers *h, const struct packet *p, __u32 isn, __u32 mss)
{
	put_addresses(h, p);
	h->l4.tcp.source = bpf_htons(p->sport);
	h->l4.tcp.dest = bpf_htons(p->port);
	h->l4.tcp.seq = bpf_htonl(isn);
	h->l4.tcp.doff = sizeof(h->l4) / 4;
	h->l4.tcp.syn = 1;
	h->l4.kind = 2;
	h->l4.size = 4;
	h->l4.mss = bpf_htons(mss);
}

/* Short headers of an ACK. */
static __always_inline void ack_headers(struct short_headers *h, const struct packet *p, __u32 seq, __u32 ack)
{
	put_addresses(h, p);
	h->l4.tcp.source = bpf_htons(p->sport);
	h->l4.tcp.dest = bpf_htons(p->port);
	h->l4.tcp.seq = bpf_htonl(seq);
	h->l4.tcp.ack_seq = bpf_htonl(ack);
	h->l4.tcp.doff = sizeof(h->l4.tcp) / 4;
	h->l4.tcp.ack = 1;
}

/*
 * The sequence number of SYNPROXY's SYN-ACK to a SYN with sequence number isn whose sender takes segments of mss bytes.
 * Returns -1 when there is none.
 */
__noinline __s64 raw_cookie(struct packet *p, __u32 isn, __u32 mss)
{
	struct short_headers h = {};
	__s64 cookie;

	if (!p)
		return -1;
	syn_headers(&h, p, isn, mss);
	if (p->family)
		cookie = bpf_tcp_raw_gen_syncookie_ipv6(&h.v6, &h.l4.tcp, sizeof(h.l4));
	else
		cookie = bpf_tcp_raw_gen_syncookie_ipv4(&h.v4, &h.l4.tcp, sizeof(h.l4));
	return cookie < 0 ? -1 : cookie & 0xffffffff;
}

/* Whether an ACK with these numbers answers a SYN-ACK with SYNPROXY's cookie of the last two to three minutes. */
__noinline __u32 raw_cookie_valid(struct packet *p, __u32 seq, __u32 ack)
{
	struct short_headers h = {};

	if (!p)
		return false;
	ack_headers(&h, p, seq, ack);
	return p->family ? !bpf_tcp_raw_check_syncookie_ipv6(&h.v6, &h.l4.tcp)
			 : !bpf_tcp_raw_check_syncookie_ipv4(&h.v4, &h.l4.tcp);
}

/*
 * The kernel's check accepts a sequence number that is some bytes too small as one with a larger MSS: its cookie is a
 * hash plus the sequence number plus the index of the MSS in a table of four (net/ipv4/syncookies.c,
 * check_tcp_syn_cookie()). So cookies without timestamps use only an MSS of even index, the first and the third.
 */
enum { MSS_EVEN = 1440, MSS_PLACES = 4 };

/* Whether a packet without timestamps, with a valid cookie, is a probe: its sequence number is one below that of the handshake. */
static __always_inline bool is_small_probe(struct packet *p, __u32 seq, __u32 ack)
{
	__u32 place = 0;

	while (place < MSS_PLACES - 1 && raw_cookie_valid(p, seq + place + 1, ack))
		place++;
	return place & 1;
}

enum {
	STAMP_OPTIONS = 0x3f, /* the bits of a timestamp that say which options the SYN had: */
	STAMP_WSCALE = 0x0f,  /* its window scale, WSCALE_NONE for none */
	STAMP_SACK = 0x10,
	STAMP_ECN = 0x20,
	STAMP_ODD = 0x40, /* for this program; SYNPROXY reads it as time: whether the SYN's sequence number is odd */
};

/* Whether a packet with this timestamp is a probe: its sequence number is one below that of the handshake. */
static __always_inline bool is_stamped_probe(__u32 stamp, __u32 seq)
{
	return (stamp / STAMP_ODD & 1) == (seq & 1);
}

/*
 * The timestamp of a SYN-ACK: milliseconds of the kernel's clock, with the options of the SYN in the lowest bits, as in
 * cookie_init_timestamp() of net/ipv4/syncookies.c. SYNPROXY reads the options from it when it comes back. It must not
 * be ahead of the clock, or the timestamps of the connection would go back.
 */
static __always_inline __u32 stamped_options(__u64 now, const struct syn_options *o, __u32 isn)
{
	__u32 options = (o->wscale & STAMP_WSCALE) | (o->sack ? STAMP_SACK : 0) | (o->ecn ? STAMP_ECN : 0);
	__u32 said = options | (isn & 1 ? STAMP_ODD : 0);
	__u64 ms = now / 1000000, stamp = (ms & ~(__u64)(STAMP_OPTIONS | STAMP_ODD)) | said;

	if (stamp > ms)
		stamp -= STAMP_ODD << 1;
	return stamp;
}

/* In milliseconds: the greatest age of a timestamp that comes back, and by how much the coarse clock may be behind it. */
enum { STAMP_MOST_AGE = 180000, STAMP_MOST_AHEAD = 1000 };

/* Whether a timestamp that came back, by the kernel's clock, can belong to a SYN-ACK whose cookie is still valid. */
static __always_inline bool stamp_is_recent(__u32 stamp, __u64 now)
{
	return (__u32)(now / 1000000) + STAMP_MOST_AHEAD - stamp <= STAMP_MOST_AGE + STAMP_MOST_AHEAD;
}

static __always_inline __u32 ip_size(const struct packet *p)
{
	return p->family ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

static __always_inline void tuple_of(struct bpf_sock_tuple *t, const struct packet *p)
{
	if (p->family) {
		put_ipv6((struct in6_addr *)t->ipv6.saddr, p->src);
		put_ipv6((struct in6_addr *)t->ipv6.daddr, p->dst);
		t->ipv6.sport = bpf_htons(p->sport);
		t->ipv6.dport = bpf_htons(p->port);
		return;
	}
	t->ipv4.saddr = ipv4_of(p->src);
	t->ipv4.daddr = ipv4_of(p->dst);
	t->ipv4.sport = bpf_htons(p->sport);
	t->ipv4.dport = bpf_htons(p->port);
}

static __always_inline __u32 tuple_size(const struct packet *p, const struct bpf_sock_tuple *t)
{
	return p->family ? sizeof(t->ipv6) : sizeof(t->ipv4);
}

/*
 * The arguments of the helpers for listening sockets. Both use the same memory, one after the other. With memory for each, the chain
 * of calls to here would exceed the 512 bytes of stack that Linux 6.1 allows (kernel/bpf/verifier.c, check_max_stack_depth).
 */
union listener_question {
	struct bpf_sock_tuple tuple;
	struct short_headers headers;
};

/* The socket that the host has for the connection of a packet, or NULL. The caller releases it. q is zero before and after. */
static __always_inline struct bpf_sock *socket_of(context *ctx, struct packet *p, union listener_question *q)
{
	struct bpf_sock *sk;

	tuple_of(&q->tuple, p);
	sk = bpf_skc_lookup_tcp(ctx, &q->tuple, tuple_size(p, &q->tuple), BPF_F_CURRENT_NETNS, 0);
	__builtin_memset(&q->tuple, 0, sizeof(q->tuple));
	return sk;
}

/*
 * The sequence number of the SYN-ACK of the listening socket, for a SYN as of raw_cookie(). The helper records that the
 * socket has sent cookies; otherwise the kernel accepts none. Returns -1 when no socket listens, or when it gives no
 * cookies (net.ipv4.tcp_syncookies is not 2).
 */
__noinline __s64 listener_cookie(context *ctx, struct packet *p, __u32 isn, __u32 mss)
{
	union listener_question q = {};
	struct bpf_sock *sk;
	__s64 cookie = -1;

	if (!p)
		return -1;
	sk = socket_of(ctx, p, &q);
	if (!sk)
		return -1;
	syn_headers(&q.headers, p, isn, mss);
	/* Pass only listeners: the helper reads fields of the socket before it checks its type (CVE-2026-80738). */
	if (sk->state == BPF_TCP_LISTEN)
		cookie = bpf_tcp_gen_syncookie(sk, &q.headers, ip_size(p), &q.headers.l4.tcp, sizeof(q.headers.l4));
	bpf_sk_release(sk);
	return cookie < 0 ? -1 : cookie & 0xffffffff;
}

/* Whether an ACK acknowledges a SYN-ACK with the cookie of the listening socket. */
__noinline __u32 listener_cookie_valid(context *ctx, struct packet *p, __u32 seq, __u32 ack)
{
	union listener_question q = {};
	struct bpf_sock *sk;
	__u32 valid = false;

	if (!p)
		return false;
	sk = socket_of(ctx, p, &q);
	if (!sk)
		return false;
	ack_headers(&q.headers, p, seq, ack);
	if (sk->state == BPF_TCP_LISTEN)
		valid = !bpf_tcp_check_syncookie(sk, &q.headers, ip_size(p), &q.headers.l4.tcp,
						 sizeof(q.headers.l4.tcp));
	bpf_sk_release(sk);
	return valid;
}

/*
 * The fields used of the kernel's structs: include/net/netfilter/nf_conntrack.h, linux/netfilter/nf_conntrack_tcp.h and
 * include/linux/tcp.h.
 */
struct ip_ct_tcp_state {
	__u32 td_end;    /* the sequence number behind the last byte that this direction has sent */
	__u32 td_maxack; /* the next byte of the other direction that it expects, by its acknowledgments */
} __attribute__((preserve_access_index));

struct ip_ct_tcp {
	struct ip_ct_tcp_state seen[2]; /* by direction */
	__u8 state;
} __attribute__((preserve_access_index));

union nf_conntrack_proto {
	struct ip_ct_tcp tcp;
} __attribute__((preserve_access_index));

struct nf_conn {
	unsigned long status;
	union nf_conntrack_proto proto;
} __attribute__((preserve_access_index));

struct tcp_request_sock {
	__u32 snt_isn; /* the sequence number of the SYN-ACK */
} __attribute__((preserve_access_index));

struct bpf_ct_opts___local {
	__s32 netns_id;
	__s32 error;
	__u8 l4proto;
	__u8 dir;
	__u8 reserved[2];
};

extern struct nf_conn *ct_lookup(context *ctx, struct bpf_sock_tuple *tuple, __u32 tuple_size,
				 struct bpf_ct_opts___local *options, __u32 options_size) __ksym __weak;
extern void bpf_ct_release(struct nf_conn *connection) __ksym __weak;
extern int bpf_ct_change_timeout(struct nf_conn *connection, __u32 milliseconds) __ksym __weak;

/* enum ip_conntrack_status of linux/netfilter/nf_conntrack_common.h. */
enum {
	TRACKED_ASSURED = 1 << 2,   /* both sides have sent packets: for TCP, the handshake is complete */
	TRACKED_CONFIRMED = 1 << 3, /* the entry is in the table, and not only on its first packet */
};

/* enum tcp_conntrack of linux/netfilter/nf_conntrack_tcp.h, as far as it is used. */
enum {
	TRACKED_SYN_RECV = 2,
	TRACKED_ESTABLISHED = 3,
	TRACKED_TIME_WAIT = 7,
};

enum { DIRECTION_REPLY = 1 };

/* The conntrack entry of the connection of a packet, in either direction; NULL if there is none. The caller releases it. */
static __always_inline struct nf_conn *tracked(context *ctx, struct packet *p)
{
	struct bpf_ct_opts___local options = { .netns_id = BPF_F_CURRENT_NETNS, .l4proto = IPPROTO_TCP };
	struct bpf_sock_tuple tuple = {};

	tuple_of(&tuple, p);
	return ct_lookup(ctx, &tuple, tuple_size(p, &tuple), &options, sizeof(options));
}

/* The enum connection for a conntrack entry. A FIN or RST ends the connection if it has the number that the server expects, as in ends_socket(). */
static __always_inline __u32 tracked_state(struct nf_conn *connection, struct packet *p, __u32 ack, __u32 seq)
{
	__u8 state = connection->proto.tcp.state;

	if (!(connection->status & TRACKED_CONFIRMED))
		return CONNECTION_NONE;
	if (state == TRACKED_ESTABLISHED)
		return (p->flags & (TCP_FIN | TCP_RST)) && seq == connection->proto.tcp.seen[DIRECTION_REPLY].td_maxack
			       ? CONNECTION_CLOSING
			       : CONNECTION_OPEN;
	if (state == TRACKED_SYN_RECV)
		return ack && ack == connection->proto.tcp.seen[DIRECTION_REPLY].td_end ? CONNECTION_OPEN
											: CONNECTION_STARTED;
	if (state < TRACKED_ESTABLISHED)
		return CONNECTION_STARTED;
	return state < TRACKED_TIME_WAIT ? CONNECTION_CLOSING : CONNECTION_OVER;
}

/*
 * The state that conntrack has for the connection of a packet with these numbers, an enum connection. An
 * entry that is not confirmed belongs to a SYN that is still on its way through this host. A handshake that is not over
 * proves nothing, because a forged SYN can start it.
 */
__noinline __u32 tracked_connection(context *ctx, struct packet *p, __u32 ack, __u32 seq)
{
	struct nf_conn *connection;
	__u32 state;

	if (!p)
		return CONNECTION_NONE;
	connection = tracked(ctx, p);
	if (!connection)
		return CONNECTION_NONE;
	state = tracked_state(connection, p, ack, seq);
	bpf_ct_release(connection);
	return state;
}

/* Whether a cookie may start a new connection in place of this one: its handshake is not over, or both sides have ended it. */
static __always_inline bool is_replaceable(struct nf_conn *connection)
{
	if (!(connection->status & TRACKED_CONFIRMED))
		return false;
	return !(connection->status & TRACKED_ASSURED) || connection->proto.tcp.state >= TRACKED_TIME_WAIT;
}

/*
 * Deletes the conntrack entry of a connection that a cookie replaces. Returns whether there was one. Two kinds are in
 * the way. First, a handshake that is not over: its SYN passed before cookies were on, or while they rested. SYNPROXY's
 * own SYN would belong to that entry, which conntrack does not mark as SYNPROXY's, and the server's answer would go to
 * the client. Second, a connection that has ended with sequence numbers ahead of the new ones: conntrack would take the
 * new ACK for an old one, and SYNPROXY would not see it. Needs Linux 6.0, as these cookies do.
 */
__noinline __u32 forget_connection(context *ctx, struct packet *p)
{
	struct nf_conn *connection;
	bool replaced;

	if (!p)
		return false;
	connection = tracked(ctx, p);
	if (!connection)
		return false;
	replaced = is_replaceable(connection);
	if (replaced)
		bpf_ct_change_timeout(connection, 0);
	bpf_ct_release(connection);
	return replaced;
}
