/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Asking the kernel whether it has the connection of a packet that no flow is known for. Each CPU may do so only so often,
 * as it costs several times what a cookie does.
 */
#pragma once

/* Who is asked about: those who come with a forged address leave the budget of the others alone. */
enum asker {
	ASK_STRANGER,
	ASK_KNOWN, /* a packet of a flow that is known */
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
	ASK_INTERVAL = 50000, /* nanoseconds between two questions of a CPU to the kernel: 20,000 a second, */
	ASK_BURST = 1000,     /* and so many more at once, as the coarse clock stands still for some milliseconds */
};

static __always_inline bool may_ask(__u32 asker, __u64 now)
{
	__u64 *next = bpf_map_lookup_elem(&askers, &asker);

	return next && may_hand_out(next, now, ASK_INTERVAL, ASK_BURST);
}

enum connection {
	CONNECTION_NONE,
	CONNECTION_BEGUN,   /* not to be remembered yet, or not any more */
	CONNECTION_CLOSING, /* one side has said that it is over */
	CONNECTION_OPEN,
};

/* Whether the host has the connection of a packet, an enum connection. Like flow_state() a function of its own. */
__noinline __u32 host_connection(struct xdp_md *ctx, struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	__u32 state;

	if (!p)
		return CONNECTION_NONE;
	tuple_of(&tuple, p);
	sk = bpf_skc_lookup_tcp(ctx, &tuple, tuple_size(p, &tuple), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return CONNECTION_NONE;
	state = sk->state;
	bpf_sk_release(sk);
	if (state == BPF_TCP_LISTEN)
		return CONNECTION_NONE;
	if (state == BPF_TCP_SYN_SENT || state == BPF_TCP_NEW_SYN_RECV || state == BPF_TCP_TIME_WAIT)
		return CONNECTION_BEGUN;
	return state == BPF_TCP_ESTABLISHED ? CONNECTION_OPEN : CONNECTION_CLOSING;
}

/* Whether the kernel knows the connection of a packet, an enum connection. */
static __always_inline __u32 kernel_connection(struct xdp_md *ctx, struct packet *p, struct protection *pr)
{
	__u32 status;

	if (pr->method != METHOD_ROUTER)
		return host_connection(ctx, p);
	status = tracked_status(ctx, p);
	if (status & TRACKED_ASSURED)
		return CONNECTION_OPEN;
	return status ? CONNECTION_BEGUN : CONNECTION_NONE;
}
