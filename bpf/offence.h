/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Offences: sources that exceeded a limit that bans. User space receives some of them, and decides which sources to ban. */
#pragma once

#include "clock.h"
#include "kernelcookie.h"
#include "l4.h"
#include "packet.h"
#include "throttle.h"

/* Whether any limit bans. Constant from load on; when false, report_offence() is removed. */
const volatile bool reporting;

/* Whether any limit bans only sources that are proved. Constant from load on; when false, judge_sender() is removed. */
const volatile bool judging;

enum {
	OFFENCE_INTERVAL = 100000, /* nanoseconds between two reports of a CPU: 10,000 a second */
	OFFENCE_BURST = 99,        /* reports that a CPU may make at once beyond that rate */
};

struct offence {
	__u32 limit;
	__u16 family;
	__u16 proved; /* 1: the sender of this packet and of enough others receives packets to that address */
	struct address src;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 << 10);
} offences SEC(".maps");

/* When each CPU may report next, in nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} reporters SEC(".maps");

struct tcp_sock___local {
	__u32 rcv_nxt;
	__u32 rcv_wnd;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 max_window;
} __attribute__((preserve_access_index));

/* A segment may begin at most so many bytes before the next expected byte: it may be a retransmission. */
enum { PROOF_BEHIND = 1 << 16 };

/*
 * Whether a segment has numbers that its connection accepts: a sequence number in the window, and an acknowledgment of sent data, no
 * older than the largest window of the peer (RFC 5961, 5.2). A blind guess of one of them succeeds once in hundreds of packets, if the
 * window is large.
 */
static __always_inline bool takes_numbers(const struct tcp_sock___local *tcp, __u32 seq, __u32 ack)
{
	return seq - tcp->rcv_nxt + PROOF_BEHIND <= tcp->rcv_wnd + PROOF_BEHIND &&
	       tcp->snd_nxt - ack <= tcp->snd_nxt - tcp->snd_una + tcp->max_window;
}

/*
 * Whether a packet is a segment of an open TCP connection of this host with numbers that the connection accepts. Then its sender has
 * received the numbers that were sent to its address. A blind guess of both succeeds once in hundreds of thousands of packets at best,
 * if the ports are known. A global function, like ipv4_options().
 */
__noinline __u32 in_connection(context *ctx, struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	struct tcp_sock___local *tcp;
	struct bpf_sock *sk;
	__u32 proved = 0;
	struct {
		__be32 seq;
		__be32 ack;
	} numbers;

	if (!p || p->proto != IPPROTO_TCP || (p->flags & (TCP_SYN | TCP_ACK)) != TCP_ACK || !p->l4)
		return 0;
	if (load_frame(ctx, p->l4 + offsetof(struct tcphdr, seq), &numbers, sizeof(numbers)))
		return 0;
	tuple_of(&tuple, p);
	sk = bpf_skc_lookup_tcp(ctx, &tuple, tuple_size(p, &tuple), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	if (sk->state == BPF_TCP_ESTABLISHED) {
		tcp = (void *)bpf_skc_to_tcp_sock(sk);
		if (tcp)
			proved = takes_numbers(tcp, bpf_ntohl(numbers.seq), bpf_ntohl(numbers.ack));
	}
	bpf_sk_release(sk);
	return proved;
}

/* Whether one more packet may be reported now. */
static __always_inline bool may_report(struct packet *p)
{
	__u32 key = 0;
	__u64 *next = bpf_map_lookup_elem(&reporters, &key);

	return next && within_rate(next, time_of(p), OFFENCE_INTERVAL, OFFENCE_BURST);
}

/* Reports the source of a packet that exceeds a limit. A global function, like ipv4_options. */
__noinline __u32 report_offence(struct packet *p)
{
	struct offence *o;

	if (!p || !p->exceeded || !((p->seen & SEEN_EXAMINED) || may_report(p)))
		return 0;
	o = bpf_ringbuf_reserve(&offences, sizeof(*o), 0);
	if (!o)
		return 0;
	o->limit = p->exceeded - 1;
	o->family = p->family;
	o->proved = !!(p->seen & SEEN_OFFENDS);
	o->src = p->src;
	bpf_ringbuf_submit(o, BPF_RB_NO_WAKEUP);
	return 0;
}
