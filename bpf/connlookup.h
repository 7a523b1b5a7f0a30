/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Asks the kernel whether it has the connection of a packet. A question costs several times as much as a cookie, so the rate of
 * questions is bounded for each CPU. Strangers and known flows have separate rates: so ACKs with forged addresses take nothing
 * from connections that have proved their address. Without an attack a new connection takes one question, at the ACK of
 * its handshake, and a CPU opens fewer connections than it may ask about.
 */
#pragma once

#include "kernelcookie.h"
#include "l4.h"
#include "packet.h"
#include "protection.h"
#include "throttle.h"

/* The kinds of packets that a question may be about. */
enum asker {
	ASK_STRANGER, /* a packet of no flow that is known */
	ASK_KNOWN,    /* a packet of a flow that is known */
	NUM_ASKERS,
};

/* When each CPU may ask the kernel next, in nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NUM_ASKERS);
	__type(key, __u32);
	__type(value, __u64);
} askers SEC(".maps");

enum {
	ASK_INTERVAL = 10000, /* nanoseconds between two questions of a CPU to the kernel: 100,000 a second */
	ASK_BURST = 2000,     /* questions at once beyond that rate: the coarse clock may stand still for some ms */
};

static __always_inline bool may_ask(__u32 asker, __u64 now)
{
	__u64 *next = bpf_map_lookup_elem(&askers, &asker);

	return next && within_rate(next, now, ASK_INTERVAL, ASK_BURST);
}

/* The acknowledgment number of a packet, in host byte order; 0 without ACK. */
static __always_inline __u32 acknowledged(context *ctx, struct packet *p)
{
	struct tcphdr *tcp = tcp_header(ctx, p);

	return tcp && (p->flags & (TCP_ACK | TCP_RST)) == TCP_ACK ? bpf_ntohl(tcp->ack_seq) : 0;
}

/* The sequence number of a packet, in host byte order. */
static __always_inline __u32 sequence(context *ctx, struct packet *p)
{
	struct tcphdr *tcp = tcp_header(ctx, p);

	return tcp ? bpf_ntohl(tcp->seq) : 0;
}

struct tcp_sock___expecting {
	__u32 rcv_nxt; /* the sequence number that the socket expects next */
} __attribute__((preserve_access_index));

/*
 * Whether a packet ends an open connection of a socket. Anybody can forge a FIN or RST, so its sequence number must be exactly the expected
 * one (RFC 5961, 3.2). If earlier segments are still on their way to the socket, the answer is false, because the end is not known yet.
 */
static __always_inline bool ends_socket(context *ctx, struct packet *p, struct bpf_sock *sk)
{
	struct tcp_sock___expecting *tcp;

	if (!(p->flags & (TCP_FIN | TCP_RST)))
		return false;
	tcp = (void *)bpf_skc_to_tcp_sock(sk);
	return tcp && tcp->rcv_nxt == sequence(ctx, p);
}

/* Whether a packet completes the handshake of a request socket. */
static __always_inline bool completes_request(struct bpf_sock *sk, __u32 ack)
{
	struct tcp_request_sock *request = bpf_skc_to_tcp_request_sock(sk);

	return request && ack && ack == request->snt_isn + 1;
}

/* The state that the host's sockets have for the connection of a packet, an enum connection. A global function, like flow_state(). */
__noinline __u32 host_connection(context *ctx, struct packet *p)
{
	__u32 state, connection = CONNECTION_CLOSING;
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;

	if (!p)
		return CONNECTION_NONE;
	tuple_of(&tuple, p);
	sk = bpf_skc_lookup_tcp(ctx, &tuple, tuple_size(p, &tuple), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return CONNECTION_NONE;
	state = sk->state;
	if (state == BPF_TCP_LISTEN)
		connection = CONNECTION_NONE;
	else if (state == BPF_TCP_ESTABLISHED)
		connection = ends_socket(ctx, p, sk) ? CONNECTION_CLOSING : CONNECTION_OPEN;
	else if (state == BPF_TCP_NEW_SYN_RECV)
		connection = completes_request(sk, acknowledged(ctx, p)) ? CONNECTION_OPEN : CONNECTION_STARTED;
	else if (state == BPF_TCP_SYN_SENT || state == BPF_TCP_TIME_WAIT)
		connection = CONNECTION_STARTED;
	bpf_sk_release(sk);
	return connection;
}

/* The state that the kernel has for the connection of a packet, an enum connection. */
static __always_inline __u32 kernel_connection(context *ctx, struct packet *p, struct protection *pr)
{
	if (pr->method != METHOD_ROUTER)
		return host_connection(ctx, p);
	return tracked_connection(ctx, p, acknowledged(ctx, p), sequence(ctx, p));
}
